#pragma once
// What a request asks its answer to look like, as text: not yet compiled.

#include <cstddef>
#include <cstdint>
#include <string>

namespace hayate::grammar {

enum class GrammarKind : uint8_t {
  kJsonObject,     // any JSON object; the source is empty
  kJsonSchema,     // JSON Schema, a JSON text
  kRegex,          // the whole answer matches the expression
  kEbnf,           // GBNF-style rules, start rule "root"
  kStructuralTag,  // xgrammar's structural tags, a JSON text
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;
  // The request's field, for error messages: "response_format.json_schema.schema".
  std::string field;

  static constexpr size_t kMaxBytes = size_t{512} * 1024;
};

// White space that JSON may hold between two tokens of its own: enough for indented output, little
// enough that a weak model cannot fill its answer with blanks.
inline constexpr int kMaxJsonWhitespace = 16;

}  // namespace hayate::grammar
