#include "grammar/detail/structural_tag_check.h"

#include <simdjson.h>

#include <optional>

#include "base/error.h"
#include "base/json_writer.h"
#include "grammar/detail/nesting.h"
#include "grammar/detail/schema_check.h"

namespace hayate::grammar::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

bool HasType(object members, std::string_view type) {
  std::string_view name;
  return members["type"].get(name) == simdjson::SUCCESS && name == type;
}

class TagWriter {
 public:
  TagWriter(const std::string& field, std::string_view mark, const RulesOfSchema& rules_of,
            JsonWriter& json)
      : field_(field), mark_(mark), rules_of_(rules_of), json_(json) {}

  // Copies a format, with the schemas in it rewritten.
  Status WriteFormat(element value, int depth) {
    if (depth > kMaxNesting) return InvalidField(field_, "nests deeper than {}", kMaxNesting);
    object members;
    array items;
    if (value.get(items) == simdjson::SUCCESS) {
      json_.BeginArray();
      for (const element item : items) RETURN_IF_ERROR(WriteFormat(item, depth + 1));
      json_.EndArray();
      return OkStatus();
    }
    if (value.get(members) != simdjson::SUCCESS) {
      json_.Raw(std::string(simdjson::minify(value)));
      return OkStatus();
    }
    element schema;
    if (HasType(members, "json_schema") &&
        members["json_schema"].get(schema) == simdjson::SUCCESS) {
      return WriteSchema(members, schema);
    }
    json_.BeginObject();
    for (const auto member : members) {
      json_.Key(member.key);
      RETURN_IF_ERROR(WriteFormat(member.value, depth + 1));
    }
    json_.EndObject();
    return OkStatus();
  }

  // {"structures":[{"begin","schema","end"},…],"triggers":[…]}
  Status WriteStructures(array structures, object members) {
    array triggers;
    if (members["triggers"].get(triggers) != simdjson::SUCCESS) {
      return InvalidField(field_, "structures need triggers, a list of strings");
    }
    json_.BeginObject();
    json_.Field("type", "triggered_tags");
    json_.Key("triggers");
    json_.Raw(std::string(simdjson::minify(triggers)));
    json_.Key("tags");
    json_.BeginArray();
    size_t index = 0;
    for (const element item : structures) {
      std::string_view begin, end;
      element schema;
      if (item["begin"].get(begin) != simdjson::SUCCESS ||
          item["end"].get(end) != simdjson::SUCCESS ||
          item["schema"].get(schema) != simdjson::SUCCESS || !schema.is_object()) {
        return InvalidField(field_, "structures[{}] needs begin, schema and end", index);
      }
      ++index;
      json_.BeginObject();
      json_.Field("type", "tag");
      json_.Field("begin", begin);
      json_.Key("content");
      RETURN_IF_ERROR(WriteSchema(std::nullopt, schema));
      json_.Field("end", end);
      json_.EndObject();
    }
    json_.EndArray();
    json_.EndObject();
    return OkStatus();
  }

 private:
  // A format of the schema and of what else `members` say of it.
  Status WriteSchema(std::optional<object> members, element schema) {
    int64_t max_blanks = -1;
    const bool plain = !members || IsPlain(*members, max_blanks);
    ASSIGN_OR_RETURN(const CheckedSchema checked,
                     CheckSchema(std::string(simdjson::minify(schema)), field_,
                                 plain ? mark_ : std::string_view()));
    json_.BeginObject();
    if (checked.counts) {
      ASSIGN_OR_RETURN(const std::string rules,
                       rules_of_(checked.text, static_cast<int>(max_blanks)));
      json_.Field("type", "grammar");
      json_.Field("grammar", rules);
    } else {
      json_.Field("type", "json_schema");
      json_.Key("json_schema");
      json_.Raw(checked.text);
      if (members) WriteOthers(*members);
    }
    json_.EndObject();
    return OkStatus();
  }

  void WriteOthers(object members) {
    for (const auto member : members) {
      if (member.key == "type" || member.key == "json_schema") continue;
      json_.Key(member.key);
      json_.Raw(std::string(simdjson::minify(member.value)));
    }
  }

  // JSON as everywhere, but for the blanks in it.
  static bool IsPlain(object members, int64_t& max_blanks) {
    constexpr int64_t kMost = 1 << 20;
    for (const auto member : members) {
      std::string_view style;
      if (member.key == "type" || member.key == "json_schema") continue;
      if (member.key == "max_whitespace_cnt") {
        const bool number = member.value.get(max_blanks) == simdjson::SUCCESS;
        if (number ? max_blanks < 0 || max_blanks > kMost : !member.value.is_null()) return false;
      } else if (member.key != "style" || member.value.get(style) != simdjson::SUCCESS ||
                 style != "json") {
        return false;
      }
    }
    return true;
  }

  const std::string& field_;
  const std::string_view mark_;
  const RulesOfSchema& rules_of_;
  JsonWriter& json_;
};

}  // namespace

Result<std::string> CheckStructuralTag(std::string_view tag, const std::string& field,
                                       std::string_view mark, const RulesOfSchema& rules_of) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::padded_string padded(tag);
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    return InvalidField(field, "is no JSON: {}", simdjson::error_message(error));
  }
  object members;
  if (root.get(members) != simdjson::SUCCESS || !HasType(members, "structural_tag")) {
    return InvalidField(field, "must be an object with type structural_tag");
  }
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("type", "structural_tag");
  json.Key("format");
  TagWriter writer(field, mark, rules_of, json);
  array structures;
  element format;
  if (members["structures"].get(structures) == simdjson::SUCCESS) {
    RETURN_IF_ERROR(writer.WriteStructures(structures, members));
  } else if (members["format"].get(format) == simdjson::SUCCESS) {
    RETURN_IF_ERROR(writer.WriteFormat(format, 0));
  } else {
    return InvalidField(field, "needs a format");
  }
  json.EndObject();
  return out;
}

}  // namespace hayate::grammar::detail
