#include "grammar/detail/structural_tag_check.h"

#include <simdjson.h>

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

// Copies a format, with the schemas in it rewritten.
Status WriteFormat(element value, int depth, const std::string& field, JsonWriter& json) {
  if (depth > kMaxNesting) return InvalidField(field, "nests deeper than {}", kMaxNesting);
  object members;
  array items;
  if (value.get(items) == simdjson::SUCCESS) {
    json.BeginArray();
    for (const element item : items) RETURN_IF_ERROR(WriteFormat(item, depth + 1, field, json));
    json.EndArray();
    return OkStatus();
  }
  if (value.get(members) != simdjson::SUCCESS) {
    json.Raw(std::string(simdjson::minify(value)));
    return OkStatus();
  }
  const bool holds_schema = HasType(members, "json_schema");
  json.BeginObject();
  for (const auto member : members) {
    json.Key(member.key);
    if (holds_schema && member.key == "json_schema") {
      ASSIGN_OR_RETURN(const std::string schema,
                       CheckSchema(std::string(simdjson::minify(member.value)), field));
      json.Raw(schema);
    } else {
      RETURN_IF_ERROR(WriteFormat(member.value, depth + 1, field, json));
    }
  }
  json.EndObject();
  return OkStatus();
}

// {"structures":[{"begin","schema","end"},…],"triggers":[…]}
Status WriteStructures(array structures, object members, const std::string& field,
                       JsonWriter& json) {
  array triggers;
  if (members["triggers"].get(triggers) != simdjson::SUCCESS) {
    return InvalidField(field, "structures need triggers, a list of strings");
  }
  json.BeginObject();
  json.Field("type", "triggered_tags");
  json.Key("triggers");
  json.Raw(std::string(simdjson::minify(triggers)));
  json.Key("tags");
  json.BeginArray();
  size_t index = 0;
  for (const element item : structures) {
    std::string_view begin, end;
    object schema;
    if (item["begin"].get(begin) != simdjson::SUCCESS ||
        item["end"].get(end) != simdjson::SUCCESS ||
        item["schema"].get(schema) != simdjson::SUCCESS) {
      return InvalidField(field, "structures[{}] needs begin, schema and end", index);
    }
    ++index;
    ASSIGN_OR_RETURN(const std::string checked,
                     CheckSchema(std::string(simdjson::minify(schema)), field));
    json.BeginObject();
    json.Field("type", "tag");
    json.Field("begin", begin);
    json.Key("content");
    json.BeginObject();
    json.Field("type", "json_schema");
    json.Key("json_schema");
    json.Raw(checked);
    json.EndObject();
    json.Field("end", end);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return OkStatus();
}

}  // namespace

Result<std::string> CheckStructuralTag(std::string_view tag, const std::string& field) {
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
  array structures;
  element format;
  if (members["structures"].get(structures) == simdjson::SUCCESS) {
    RETURN_IF_ERROR(WriteStructures(structures, members, field, json));
  } else if (members["format"].get(format) == simdjson::SUCCESS) {
    RETURN_IF_ERROR(WriteFormat(format, 0, field, json));
  } else {
    return InvalidField(field, "needs a format");
  }
  json.EndObject();
  return out;
}

}  // namespace hayate::grammar::detail
