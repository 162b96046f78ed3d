#include "grammar/detail/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace hayate::grammar::detail {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

enum class AppliesTo : uint8_t { kAll, kObject, kArray, kString, kNumber };
enum class Support : uint8_t {
  kEnforced,
  kCopied,   // enforced, and handed on as it is
  kRefused,  // changes what is valid, and no grammar says so
};

struct Keyword {
  std::string_view name;
  AppliesTo type;
  Support support;
};

// Every keyword that restricts values. What is not listed annotates, or means nothing to JSON
// Schema.
constexpr std::array kKeywords = {
    Keyword{"$ref", AppliesTo::kAll, Support::kEnforced},
    Keyword{"const", AppliesTo::kAll, Support::kEnforced},
    Keyword{"enum", AppliesTo::kAll, Support::kEnforced},
    Keyword{"anyOf", AppliesTo::kAll, Support::kEnforced},
    Keyword{"oneOf", AppliesTo::kAll, Support::kEnforced},
    Keyword{"allOf", AppliesTo::kAll, Support::kEnforced},
    Keyword{"type", AppliesTo::kAll, Support::kEnforced},
    Keyword{"not", AppliesTo::kAll, Support::kRefused},
    Keyword{"if", AppliesTo::kAll, Support::kRefused},
    Keyword{"$dynamicRef", AppliesTo::kAll, Support::kRefused},
    Keyword{"$recursiveRef", AppliesTo::kAll, Support::kRefused},
    Keyword{"properties", AppliesTo::kObject, Support::kEnforced},
    Keyword{"required", AppliesTo::kObject, Support::kCopied},
    Keyword{"additionalProperties", AppliesTo::kObject, Support::kEnforced},
    Keyword{"unevaluatedProperties", AppliesTo::kObject, Support::kEnforced},
    Keyword{"patternProperties", AppliesTo::kObject, Support::kEnforced},
    Keyword{"propertyNames", AppliesTo::kObject, Support::kEnforced},
    Keyword{"minProperties", AppliesTo::kObject, Support::kCopied},
    Keyword{"maxProperties", AppliesTo::kObject, Support::kCopied},
    Keyword{"dependentRequired", AppliesTo::kObject, Support::kRefused},
    Keyword{"dependentSchemas", AppliesTo::kObject, Support::kRefused},
    Keyword{"dependencies", AppliesTo::kObject, Support::kRefused},
    Keyword{"items", AppliesTo::kArray, Support::kEnforced},
    Keyword{"prefixItems", AppliesTo::kArray, Support::kEnforced},
    Keyword{"unevaluatedItems", AppliesTo::kArray, Support::kEnforced},
    Keyword{"additionalItems", AppliesTo::kArray, Support::kRefused},
    Keyword{"minItems", AppliesTo::kArray, Support::kCopied},
    Keyword{"maxItems", AppliesTo::kArray, Support::kCopied},
    Keyword{"uniqueItems", AppliesTo::kArray, Support::kRefused},
    Keyword{"contains", AppliesTo::kArray, Support::kRefused},
    Keyword{"minLength", AppliesTo::kString, Support::kCopied},
    Keyword{"maxLength", AppliesTo::kString, Support::kCopied},
    Keyword{"pattern", AppliesTo::kString, Support::kCopied},
    Keyword{"format", AppliesTo::kString, Support::kCopied},
    // Of integers: integer_bounds.h.
    Keyword{"minimum", AppliesTo::kNumber, Support::kCopied},
    Keyword{"maximum", AppliesTo::kNumber, Support::kCopied},
    Keyword{"exclusiveMinimum", AppliesTo::kNumber, Support::kCopied},
    Keyword{"exclusiveMaximum", AppliesTo::kNumber, Support::kCopied},
    Keyword{"multipleOf", AppliesTo::kNumber, Support::kCopied},
};

constexpr std::array<std::string_view, 7> kTypeNames = {"object", "array",   "string", "integer",
                                                        "number", "boolean", "null"};

const Keyword* Find(std::string_view name) {
  const auto* it = std::find_if(kKeywords.begin(), kKeywords.end(),
                                [&](const Keyword& keyword) { return keyword.name == name; });
  return it == kKeywords.end() ? nullptr : it;
}

bool Has(object schema, std::string_view name) {
  return schema.at_key(name).error() == simdjson::SUCCESS;
}

bool Applies(AppliesTo type, const TypeSet& types) {
  switch (type) {
    case AppliesTo::kAll:
      return true;
    case AppliesTo::kObject:
      return types.object;
    case AppliesTo::kArray:
      return types.array;
    case AppliesTo::kString:
      return types.string;
    case AppliesTo::kNumber:
      return types.integer || types.number;
  }
  return false;
}

// A keyword of the list says nothing with this value.
bool SaysNothing(std::string_view name, element value) {
  bool flag = true;
  return name == "uniqueItems" && value.get(flag) == simdjson::SUCCESS && !flag;
}

std::string_view TypeName(element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::OBJECT:
      return "object";
    case simdjson::dom::element_type::ARRAY:
      return "array";
    case simdjson::dom::element_type::STRING:
      return "string";
    case simdjson::dom::element_type::BOOL:
      return "boolean";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64:
      return "integer";
    case simdjson::dom::element_type::DOUBLE:
      return "number";
  }
  return "";
}

bool NamesType(object schema, std::string_view name) {
  const auto matches = [&](element item) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS) return false;
    return text == name || (text == "number" && name == "integer");
  };
  const element type = schema.at_key("type").value_unsafe();
  simdjson::dom::array several;
  if (type.get(several) != simdjson::SUCCESS) return matches(type);
  return std::any_of(several.begin(), several.end(), matches);
}

std::optional<std::string> CheckType(object schema) {
  if (!Has(schema, "type")) return std::nullopt;
  const auto check = [](element item) -> std::optional<std::string> {
    std::string_view name;
    if (item.get(name) != simdjson::SUCCESS) return "type must be a name or a list of names";
    if (std::find(kTypeNames.begin(), kTypeNames.end(), name) != kTypeNames.end()) {
      return std::nullopt;
    }
    return fmt::format("type '{}' is unknown", name.substr(0, 40));
  };
  const element type = schema.at_key("type").value_unsafe();
  simdjson::dom::array several;
  if (type.get(several) != simdjson::SUCCESS) return check(type);
  if (several.size() == 0) return "type must name at least one type";
  for (const element item : several) {
    if (auto complaint = check(item)) return complaint;
  }
  return std::nullopt;
}

// Beside const and enum a type may stand when the values have it.
std::optional<std::string> CheckValues(object schema) {
  element single;
  if (schema.at_key("const").get(single) == simdjson::SUCCESS) {
    if (!Has(schema, "type") || NamesType(schema, TypeName(single))) return std::nullopt;
    return "const is not of the type";
  }
  simdjson::dom::array values;
  if (schema.at_key("enum").get(values) != simdjson::SUCCESS || values.size() == 0) {
    return "enum must be a list of values, not empty";
  }
  if (!Has(schema, "type")) return std::nullopt;
  for (const element value : values) {
    if (!NamesType(schema, TypeName(value))) return "enum holds a value that is not of the type";
  }
  return std::nullopt;
}

// The shapes that the compiler takes for granted.
std::optional<std::string> CheckShapes(object schema) {
  for (const char* name : {"properties", "patternProperties", "propertyNames", "$defs"}) {
    if (Has(schema, name) && !schema.at_key(name).is_object()) {
      return fmt::format("{} must be an object", name);
    }
  }
  for (const char* name : {"required", "prefixItems"}) {
    if (Has(schema, name) && !schema.at_key(name).is_array()) {
      return fmt::format("{} must be a list", name);
    }
  }
  for (const char* name : {"pattern", "format"}) {
    if (Has(schema, name) && !schema.at_key(name).is_string()) {
      return fmt::format("{} must be a string", name);
    }
  }
  for (const char* name :
       {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}) {
    int64_t value = 0;
    if (!Has(schema, name)) continue;
    if (schema.at_key(name).get(value) != simdjson::SUCCESS || value < 0) {
      return fmt::format("{} must be a whole number, 0 or more", name);
    }
  }
  return std::nullopt;
}

// Two ways of naming properties that can meet on one name, where only one would be enforced.
std::optional<std::string> CheckProperties(object schema, const TypeSet& types) {
  if (!types.object) return std::nullopt;
  const bool patterns = Has(schema, "patternProperties");
  const bool names = Has(schema, "propertyNames");
  const auto additional = schema.at_key("additionalProperties");
  bool closed = true;
  const bool is_flag = additional.get(closed) == simdjson::SUCCESS;
  const bool open = Has(schema, "additionalProperties") && (!is_flag || closed);
  if ((patterns || names) && (Has(schema, "properties") || open || Has(schema, "required"))) {
    return fmt::format("{} is supported alone, not with other properties",
                       patterns ? "patternProperties" : "propertyNames");
  }
  if (patterns && names) return "patternProperties excludes propertyNames";
  if (patterns && schema.at_key("patternProperties").get_object().size() > 1) {
    return "patternProperties with more than one pattern is not supported";
  }
  return std::nullopt;
}

}  // namespace

SchemaForm FormOf(object schema) {
  if (Has(schema, "$ref")) return SchemaForm::kReference;
  if (Has(schema, "const") || Has(schema, "enum")) return SchemaForm::kValues;
  if (Has(schema, "anyOf")) return SchemaForm::kAnyOf;
  if (Has(schema, "oneOf")) return SchemaForm::kOneOf;
  if (Has(schema, "allOf")) return SchemaForm::kAllOf;
  const TypeSet types = TypesOf(schema);
  if (Has(schema, "type") || types.object || types.array) return SchemaForm::kTyped;
  return SchemaForm::kAnything;
}

std::string_view KeywordOf(SchemaForm form) {
  switch (form) {
    case SchemaForm::kReference:
      return "$ref";
    case SchemaForm::kValues:
      return "enum";
    case SchemaForm::kAnyOf:
      return "anyOf";
    case SchemaForm::kOneOf:
      return "oneOf";
    case SchemaForm::kAllOf:
      return "allOf";
    case SchemaForm::kTyped:
      return "type";
    case SchemaForm::kAnything:
      return "";
  }
  return "";
}

TypeSet TypesOf(object schema) {
  TypeSet types;
  if (Has(schema, "type")) {
    types.object = NamesType(schema, "object");
    types.array = NamesType(schema, "array");
    types.string = NamesType(schema, "string");
    types.number = NamesType(schema, "number");
    types.integer = NamesType(schema, "integer") && !types.number;
    return types;
  }
  // As the compiler reads a schema without a type.
  types.object = Has(schema, "properties") || Has(schema, "additionalProperties") ||
                 Has(schema, "unevaluatedProperties");
  types.array = !types.object && (Has(schema, "items") || Has(schema, "prefixItems") ||
                                  Has(schema, "unevaluatedItems"));
  return types;
}

std::optional<std::string> CheckKeywords(object schema, SchemaForm form) {
  if (auto complaint = CheckType(schema)) return complaint;
  if (auto complaint = CheckShapes(schema)) return complaint;
  const TypeSet types = TypesOf(schema);
  const std::string_view head = KeywordOf(form);
  for (const auto member : schema) {
    const Keyword* keyword = Find(member.key);
    if (keyword == nullptr || SaysNothing(member.key, member.value)) continue;
    if (form == SchemaForm::kTyped && !Applies(keyword->type, types)) continue;
    if (keyword->support == Support::kRefused) {
      return fmt::format("{} is not supported", keyword->name);
    }
    if (form == SchemaForm::kAnything) return fmt::format("{} needs a type", keyword->name);
    if (form == SchemaForm::kTyped || keyword->name == head) continue;
    const bool values = form == SchemaForm::kValues;
    if (values && (keyword->name == "const" || keyword->name == "type")) continue;
    return fmt::format("{} beside {} is not supported", keyword->name, head);
  }
  if (form == SchemaForm::kValues) return CheckValues(schema);
  const bool fraction = types.number && Has(schema, "multipleOf");
  if (form == SchemaForm::kTyped && fraction) return "multipleOf of a number is not supported";
  return form == SchemaForm::kTyped ? CheckProperties(schema, types) : std::nullopt;
}

bool IsCopied(std::string_view name, const TypeSet& types) {
  const Keyword* keyword = Find(name);
  if (keyword == nullptr || keyword->support != Support::kCopied) return false;
  const bool bound = keyword->type == AppliesTo::kNumber && name != "multipleOf";
  if (bound && types.integer) return false;
  return Applies(keyword->type, types);
}

}  // namespace hayate::grammar::detail
