#include "api/grammar_fields.h"

#include <string>
#include <vector>

namespace hayate::api {
namespace {

using grammar::GrammarKind;
using grammar::GrammarSource;

class GrammarFieldReader {
 public:
  GrammarFieldReader(FieldReader& fields, std::string_view prefix)
      : fields_(fields), prefix_(prefix) {}

  std::optional<GrammarSource> Read() {
    for (const auto& [name, kind] :
         {std::pair("regex", GrammarKind::kRegex), std::pair("ebnf", GrammarKind::kEbnf)}) {
      const auto text = fields_.String(name);
      if (text && text->empty()) fields_.Fail(name, "must not be empty");
      if (text) Add(kind, std::string(*text), name);
    }
    ReadJson("json_schema", GrammarKind::kJsonSchema);
    ReadJson("structural_tag", GrammarKind::kStructuralTag);
    return ReadFormat("response_format");
  }

  // A field of response_format's kind joins what was found.
  std::optional<GrammarSource> ReadFormat(const char* name) {
    if (const auto format = fields_.Object(name)) ReadResponseFormat(*format, name);
    if (found_.size() > 1) {
      fields_.Fail(found_[1].second, "excludes " + found_[0].second + ": give one of them");
    }
    if (found_.empty()) return std::nullopt;
    return std::move(found_.front().first);
  }

 private:
  void Add(GrammarKind kind, std::string text, const std::string& name,
           const std::string& below = "") {
    found_.emplace_back(GrammarSource{kind, std::move(text), prefix_ + name + below}, name);
  }

  // JSON as a value, or as a text that holds it.
  void ReadJson(const char* name, GrammarKind kind) {
    const auto value = fields_.Any(name);
    if (!value) return;
    std::string_view text;
    if (value->get(text) != simdjson::SUCCESS) {
      return Add(kind, std::string(simdjson::minify(*value)), name);
    }
    // SGLang's word for "any JSON".
    if (kind == GrammarKind::kJsonSchema && text == "$$ANY$$") {
      return Add(GrammarKind::kJsonObject, "", name);
    }
    Add(kind, std::string(text), name);
  }

  void ReadResponseFormat(simdjson::dom::object format, const char* name) {
    std::string_view type;
    if (format["type"].get(type) != simdjson::SUCCESS) {
      return fields_.Fail(name, "needs a type: text, json_object, json_schema or structural_tag");
    }
    if (type == "text") return;
    if (type == "json_object") return Add(GrammarKind::kJsonObject, "", name);
    if (type == "structural_tag") {
      return Add(GrammarKind::kStructuralTag, std::string(simdjson::minify(format)), name);
    }
    if (type != "json_schema") {
      return fields_.Fail(name, "type '" + Shown(type) +
                                    "' is none of text, json_object, json_schema, structural_tag");
    }
    simdjson::dom::element schema;
    // The place of chat completions, and the flat one of newer surfaces and other servers.
    const char* place = ".json_schema.schema";
    if (format.at_pointer("/json_schema/schema").get(schema) != simdjson::SUCCESS) {
      place = ".schema";
      if (format["schema"].get(schema) != simdjson::SUCCESS) {
        return fields_.Fail(name, "its schema is missing");
      }
    }
    Add(GrammarKind::kJsonSchema, std::string(simdjson::minify(schema)), name, place);
  }

  FieldReader& fields_;
  std::string prefix_;
  std::vector<std::pair<GrammarSource, std::string>> found_;
};

}  // namespace

std::optional<GrammarSource> ReadGrammarFields(FieldReader& fields, std::string_view prefix) {
  return GrammarFieldReader(fields, prefix).Read();
}

std::optional<GrammarSource> ReadFormatField(FieldReader& fields, const char* name,
                                             std::string_view prefix) {
  return GrammarFieldReader(fields, prefix).ReadFormat(name);
}

}  // namespace hayate::api
