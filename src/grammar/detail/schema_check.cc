#include "grammar/detail/schema_check.h"

#include <simdjson.h>

#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json_writer.h"
#include "grammar/detail/counted_strings.h"
#include "grammar/detail/integer_bounds.h"
#include "grammar/detail/json_pointer.h"
#include "grammar/detail/nesting.h"
#include "grammar/detail/repeat_counts.h"
#include "grammar/detail/schema_keywords.h"
#include "grammar/detail/string_lengths.h"

namespace hayate::grammar::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

class SchemaRewriter {
 public:
  // `mark`: of counted strings; lengths are spelled out where it is empty.
  SchemaRewriter(element root, const std::string& field, std::string mark)
      : root_(root), field_(field), mark_(std::move(mark)) {}

  Result<std::string> Run() {
    // The root's own text is held back: definitions join it as members of its object.
    std::string body;
    RETURN_IF_ERROR(Write(root_, "", 0, body));
    if (definitions_.empty()) return body;
    std::string definitions;
    // Writing a definition may name further ones.
    for (size_t i = 0; i < definitions_.size(); ++i) {
      std::string text;
      const Definition definition = definitions_[i];
      RETURN_IF_ERROR(Write(definition.target, definition.pointer, 0, text));
      definitions += (i == 0 ? "" : ",") + ("\"" + definition.name + "\":" + text);
    }
    if (!body.starts_with('{')) return body;
    const bool empty = body == "{}";
    body.insert(1, "\"$defs\":{" + definitions + "}" + (empty ? "" : ","));
    return body;
  }

 private:
  struct Definition {
    std::string name;
    std::string pointer;
    element target;
  };

  template <typename... Args>
  Status Fail(const std::string& at, fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidField(field_, "{}{}", at.empty() ? "" : "at " + at + ": ",
                        fmt::format(format, std::forward<Args>(args)...));
  }

  Status Write(element schema, const std::string& at, int depth, std::string& out) {
    if (depth > kMaxNesting) return Fail(at, "nests deeper than {}", kMaxNesting);
    if (schema.is_bool()) {
      out += simdjson::minify(schema);
      return OkStatus();
    }
    object members;
    if (schema.get(members) != simdjson::SUCCESS) {
      return Fail(at, "a schema is an object or a boolean");
    }
    const SchemaForm form = FormOf(members);
    if (const auto complaint = CheckKeywords(members, form)) return Fail(at, "{}", *complaint);
    JsonWriter json(out);
    json.BeginObject();
    switch (form) {
      case SchemaForm::kReference:
        RETURN_IF_ERROR(WriteReference(members, at, json));
        break;
      case SchemaForm::kValues:
        WriteValues(members, json);
        break;
      case SchemaForm::kAnyOf:
      case SchemaForm::kOneOf:
      case SchemaForm::kAllOf:
        RETURN_IF_ERROR(WriteCombination(members, form, at, depth, json));
        break;
      case SchemaForm::kTyped:
        RETURN_IF_ERROR(WriteTyped(members, at, depth, json));
        break;
      case SchemaForm::kAnything:
        break;
    }
    json.EndObject();
    return OkStatus();
  }

  Status WriteReference(object members, const std::string& at, JsonWriter& json) {
    std::string_view reference;
    if (members["$ref"].get(reference) != simdjson::SUCCESS) {
      return Fail(at, "$ref must be a string");
    }
    if (!reference.starts_with('#')) {
      return Fail(at, "$ref '{}' is not inside this schema; nothing is fetched", reference);
    }
    const auto target = ResolvePointer(root_, reference);
    if (!target) return Fail(at, "$ref '{}' leads nowhere", reference);
    if (const auto loop = FindLoop(*target, reference)) {
      return Fail(at, "$ref '{}' comes back to itself through '{}' with nothing in between",
                  reference, *loop);
    }
    if (reference == "#" || reference == "#/") {
      json.Field("$ref", "#");
      return OkStatus();
    }
    auto [known, added] = names_.try_emplace(std::string(reference));
    if (added) {
      known->second = "d" + std::to_string(definitions_.size());
      definitions_.push_back({known->second, std::string(reference), *target});
    }
    json.Field("$ref", "#/$defs/" + known->second);
    return OkStatus();
  }

  // A reference that leads to itself by references and alternatives alone describes no text.
  std::optional<std::string> FindLoop(element schema, std::string_view start) const {
    std::set<std::string, std::less<>> seen;
    std::vector<std::pair<element, std::string>> open{{schema, std::string(start)}};
    while (!open.empty()) {
      const auto [at, name] = open.back();
      open.pop_back();
      object members;
      if (at.get(members) != simdjson::SUCCESS) continue;
      std::string_view next;
      if (members["$ref"].get(next) == simdjson::SUCCESS) {
        if (next == start) return name;
        const auto target = ResolvePointer(root_, next);
        if (target && seen.insert(std::string(next)).second) {
          open.emplace_back(*target, std::string(next));
        }
        continue;
      }
      for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
        array options;
        if (members[keyword].get(options) != simdjson::SUCCESS) continue;
        for (const element option : options) open.emplace_back(option, name);
      }
    }
    return std::nullopt;
  }

  void WriteValues(object members, JsonWriter& json) {
    for (const char* keyword : {"const", "enum"}) {
      element value;
      if (members[keyword].get(value) != simdjson::SUCCESS) continue;
      json.Key(keyword);
      json.Raw(std::string(simdjson::minify(value)));
      return;
    }
  }

  Status WriteCombination(object members, SchemaForm form, const std::string& at, int depth,
                          JsonWriter& json) {
    const std::string keyword(KeywordOf(form));
    array options;
    if (members[keyword].get(options) != simdjson::SUCCESS || options.size() == 0) {
      return Fail(at, "{} must be a list of schemas, not empty", keyword);
    }
    if (form == SchemaForm::kAllOf && options.size() > 1) {
      return Fail(at, "allOf with more than one schema is not supported: merge them into one");
    }
    json.Key(keyword);
    return WriteList(options, at + "/" + keyword, depth, json);
  }

  Status WriteList(array schemas, const std::string& at, int depth, JsonWriter& json) {
    json.BeginArray();
    size_t index = 0;
    for (const element item : schemas) {
      std::string text;
      RETURN_IF_ERROR(Write(item, at + "/" + std::to_string(index++), depth + 1, text));
      json.Raw(text);
    }
    json.EndArray();
    return OkStatus();
  }

  Status WriteTyped(object members, const std::string& at, int depth, JsonWriter& json) {
    const TypeSet types = TypesOf(members);
    element type;
    if (members["type"].get(type) == simdjson::SUCCESS) {
      json.Key("type");
      json.Raw(std::string(simdjson::minify(type)));
    }
    if (types.integer) {
      const auto bounds = ReadIntegerBounds(members);
      if (!bounds.ok()) return Fail(at, "{}", bounds.status().message());
      if (types.number) return Fail(at, "type names both integer and number: number is enough");
      if (bounds->low) json.Field("minimum", *bounds->low);
      if (bounds->high) json.Field("maximum", *bounds->high);
    }
    if (types.string) RETURN_IF_ERROR(CheckPattern(members["pattern"], at + "/pattern"));
    const auto lengths = types.string ? PatternOfBounds(members) : std::nullopt;
    if (lengths) json.Field("pattern", *lengths);
    for (const auto member : members) {
      const bool is_length = member.key == "minLength" || member.key == "maxLength";
      if (!IsCopied(member.key, types) || (lengths && is_length)) continue;
      json.Key(member.key);
      json.Raw(std::string(simdjson::minify(member.value)));
    }
    if (types.array) RETURN_IF_ERROR(WriteItems(members, at, depth, json));
    if (types.object) RETURN_IF_ERROR(WriteProperties(members, at, depth, json));
    return OkStatus();
  }

  // The pattern of a string that is bounded by its length alone.
  std::optional<std::string> PatternOfBounds(object members) const {
    if (mark_.empty()) return PatternOfLengths(members);
    const auto bounds = ReadLengthBounds(members);
    return bounds ? std::optional(PatternOf(mark_, *bounds)) : std::nullopt;
  }

  Status CheckPattern(simdjson::simdjson_result<element> pattern, const std::string& at) const {
    std::string_view expression;
    return pattern.get(expression) == simdjson::SUCCESS ? CheckRepeats(expression, at) : OkStatus();
  }

  Status CheckRepeats(std::string_view expression, const std::string& at) const {
    const int64_t repeats = LargestRepeat(expression);
    if (repeats <= kMaxRepeats) return OkStatus();
    return Fail(at, "repeats a part {} times; at most {} are supported, or any number (*, +)",
                repeats, kMaxRepeats);
  }

  Status WriteItems(object members, const std::string& at, int depth, JsonWriter& json) {
    array prefix;
    const bool has_prefix = members["prefixItems"].get(prefix) == simdjson::SUCCESS;
    if (has_prefix) {
      json.Key("prefixItems");
      RETURN_IF_ERROR(WriteList(prefix, at + "/prefixItems", depth, json));
    }
    for (const char* keyword : {"items", "unevaluatedItems"}) {
      element items;
      if (members[keyword].get(items) != simdjson::SUCCESS) continue;
      std::string text;
      RETURN_IF_ERROR(Write(items, at + "/" + keyword, depth + 1, text));
      json.Key("items");
      json.Raw(text);
      return OkStatus();
    }
    int64_t least = 0;
    const bool wants_more = members["minItems"].get(least) == simdjson::SUCCESS && has_prefix &&
                            least > static_cast<int64_t>(prefix.size());
    if (!has_prefix || wants_more) json.Field("items", true);
    return OkStatus();
  }

  Status WriteProperties(object members, const std::string& at, int depth, JsonWriter& json) {
    object properties;
    const bool has_properties = members["properties"].get(properties) == simdjson::SUCCESS;
    std::set<std::string, std::less<>> declared;
    std::string others;  // schema of the properties that are not declared
    for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
      element additional;
      if (!others.empty() || members[keyword].get(additional) != simdjson::SUCCESS) continue;
      RETURN_IF_ERROR(Write(additional, at + "/" + keyword, depth + 1, others));
    }
    json.Key("properties");
    json.BeginObject();
    if (has_properties) {
      for (const auto member : properties) {
        const std::string name(member.key);
        if (!declared.insert(name).second) return Fail(at, "property '{}' is there twice", name);
        std::string text;
        RETURN_IF_ERROR(Write(member.value, at + "/properties/" + name, depth + 1, text));
        json.Key(name);
        json.Raw(text);
      }
    }
    RETURN_IF_ERROR(DeclareRequired(members, at, others, declared, json));
    json.EndObject();
    RETURN_IF_ERROR(WritePatterns(members, at, depth, json));
    int64_t least = 0;
    const bool wants_more = members["minProperties"].get(least) == simdjson::SUCCESS &&
                            least > static_cast<int64_t>(declared.size());
    const bool open = !has_properties && !members.at_key("patternProperties").is_object();
    if (others.empty() && (open || wants_more)) others = "true";
    if (!others.empty()) {
      json.Key("additionalProperties");
      json.Raw(others);
    }
    return OkStatus();
  }

  // A required property that nothing declares is one of the others.
  Status DeclareRequired(object members, const std::string& at, const std::string& others,
                         std::set<std::string, std::less<>>& declared, JsonWriter& json) {
    array required;
    if (members["required"].get(required) != simdjson::SUCCESS) return OkStatus();
    for (const element item : required) {
      std::string_view name;
      if (item.get(name) != simdjson::SUCCESS) return Fail(at, "required must hold names");
      if (!declared.insert(std::string(name)).second) continue;
      if (others == "false") {
        return Fail(at, "property '{}' is required, but neither declared nor allowed", name);
      }
      json.Key(name);
      json.Raw(others.empty() ? "true" : others);
    }
    return OkStatus();
  }

  Status WritePatterns(object members, const std::string& at, int depth, JsonWriter& json) {
    object patterns;
    if (members["patternProperties"].get(patterns) == simdjson::SUCCESS) {
      json.Key("patternProperties");
      json.BeginObject();
      for (const auto member : patterns) {
        RETURN_IF_ERROR(CheckRepeats(member.key, at + "/patternProperties"));
        std::string text;
        RETURN_IF_ERROR(Write(member.value, at + "/patternProperties", depth + 1, text));
        json.Key(member.key);
        json.Raw(text);
      }
      json.EndObject();
    }
    element names;
    if (members["propertyNames"].get(names) != simdjson::SUCCESS) return OkStatus();
    object named;
    if (names.get(named) == simdjson::SUCCESS) {
      RETURN_IF_ERROR(CheckPattern(named["pattern"], at + "/propertyNames/pattern"));
    }
    json.Key("propertyNames");
    const auto lengths = names.is_object() ? PatternOfBounds(named) : std::nullopt;
    if (!lengths) {
      json.Raw(std::string(simdjson::minify(names)));
      return OkStatus();
    }
    json.BeginObject();
    json.Field("pattern", *lengths);
    json.EndObject();
    return OkStatus();
  }

  element root_;
  const std::string& field_;
  const std::string mark_;
  std::map<std::string, std::string, std::less<>> names_;  // reference → definition
  std::vector<Definition> definitions_;
};

}  // namespace

Result<CheckedSchema> CheckSchema(std::string_view schema, const std::string& field,
                                  std::string_view mark) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::padded_string padded(schema);
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    return InvalidField(field, "is no JSON: {}", simdjson::error_message(error));
  }
  ASSIGN_OR_RETURN(std::string text, SchemaRewriter(root, field, std::string(mark)).Run());
  const bool counts = !mark.empty() && text.find(mark) != std::string::npos;
  return CheckedSchema{std::move(text), counts};
}

}  // namespace hayate::grammar::detail
