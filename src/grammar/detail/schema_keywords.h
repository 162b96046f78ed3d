#pragma once
// Which keywords of one schema object the compiler enforces, as tables, and what is wrong with it.

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hayate::grammar::detail {

// The keyword that decides what a schema object says. The compiler reads it and nothing beside it.
enum class SchemaForm : uint8_t {
  kReference,  // $ref
  kValues,     // const, enum
  kAnyOf,
  kOneOf,
  kAllOf,
  kTyped,     // type, or properties and items that imply one
  kAnything,  // annotations alone
};

SchemaForm FormOf(simdjson::dom::object schema);
std::string_view KeywordOf(SchemaForm form);

struct TypeSet {
  bool object = false, array = false, string = false, integer = false, number = false;
};
TypeSet TypesOf(simdjson::dom::object schema);

// What cannot be enforced, or is no schema at all; nothing when all is well.
std::optional<std::string> CheckKeywords(simdjson::dom::object schema, SchemaForm form);

// Goes to the compiler as it is: limits of the schema's types that hold no schemas themselves.
bool IsCopied(std::string_view keyword, const TypeSet& types);

}  // namespace hayate::grammar::detail
