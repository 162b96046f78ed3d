#pragma once
// Tokens → SyntaxTree.

#include <vector>

#include "base/status.h"
#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace hayate::text::jinja {

Result<SyntaxTree> Parse(const std::vector<Token>& tokens);

}  // namespace hayate::text::jinja
