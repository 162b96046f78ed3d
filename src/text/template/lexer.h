#pragma once
// Template source → tokens. Whitespace control is settled here: trim_blocks and lstrip_blocks are
// always on (the settings chat templates are written for), `-` and `+` marks override them, and one
// newline at the end of the source is dropped.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/template/ast.h"

namespace hayate::text::jinja {

struct Token {
  enum class Kind {
    kText,           // template text between tags
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kString,   // `text` holds the value, escapes resolved
    kInteger,  // `text` in decimal, hex, octal or binary notation without underscores
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  Position position;

  bool IsOperator(std::string_view op) const { return kind == Kind::kOperator && text == op; }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// The last token is kEnd.
Result<std::vector<Token>> Tokenize(std::string_view source);

// "template line 3, column 14: …"
Status ErrorAt(Position position, std::string_view message);

}  // namespace hayate::text::jinja
