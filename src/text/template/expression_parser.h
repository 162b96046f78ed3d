#pragma once
// The expression half of the parser: a recursive descent with jinja2's precedence
//   if-else < or < and < not < comparisons < + - < ~ < * / // % < ** < unary < postfix, filters,
//   tests

#include <array>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace hayate::text::jinja {

class ExpressionParser {
 public:
  // Expressions and statements may be nested this deep; a deeper source is refused.
  static constexpr int kMaxNesting = 120;

  // `tokens` and `tree` outlive the parser.
  ExpressionParser(const std::vector<Token>& tokens, SyntaxTree& tree);

  Result<ExpressionRef> ParseExpression();
  // The same without a top-level `… if …`, where `if` means something else.
  Result<ExpressionRef> ParseWithoutCondition();
  enum class ConditionAllowed { kYes, kNo };
  // One expression, or a tuple if commas follow.
  Result<ExpressionRef> ParseTuple(ConditionAllowed condition);
  // `name(args) | name…` around `input`, which may be null. Current token: the first name.
  Result<ExpressionRef> ParseFilters(ExpressionRef input);

  // ---- The token stream, shared with the statement parser.
  const Token& Current() const { return tokens_[next_]; }
  const Token& Take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  Status ExpectOperator(std::string_view op);
  Status ExpectName(std::string_view name);
  Status Expect(Token::Kind kind);
  // "expected …, got …" at the current token.
  Status Unexpected(std::string_view expected) const;

  NameId Intern(std::string_view name);
  // How often the names caller, varargs and kwargs were read so far, indexed by NameId.
  const std::array<int, 4>& special_name_uses() const { return special_name_uses_; }

  // Levels of nesting in use, counted by both parsers.
  int nesting = 0;
  Status CheckNesting() const;

 private:
  template <typename Node>
  ExpressionRef New(Position position, Node node) {
    tree_.expressions.push_back({position, std::move(node)});
    return &tree_.expressions.back();
  }

  // ---- Operators (expression_parser.cc)
  Result<ExpressionRef> ParseOr();
  Result<ExpressionRef> ParseAnd();
  Result<ExpressionRef> ParseNot();
  Result<ExpressionRef> ParseCompare();
  Result<ExpressionRef> ParseAdditive();
  Result<ExpressionRef> ParseConcatenation();
  Result<ExpressionRef> ParseMultiplicative();
  Result<ExpressionRef> ParsePower();
  enum class FiltersAllowed { kYes, kNo };
  Result<ExpressionRef> ParseUnary(FiltersAllowed filters);

  // ---- Operands (operand_parser.cc)
  Result<ExpressionRef> ParsePrimary();
  Result<ExpressionRef> ParseNameOrConstant();
  Result<ExpressionRef> ParseNumber();
  Result<ExpressionRef> ParseParenthesized();
  Result<ExpressionRef> ParseListDisplay();
  Result<ExpressionRef> ParseDictDisplay();
  Result<ExpressionRef> ParsePostfix(ExpressionRef operand);
  Result<ExpressionRef> ParseFiltersAndTests(ExpressionRef operand);
  Result<ExpressionRef> ParseAttribute(ExpressionRef object);
  Result<ExpressionRef> ParseSubscript(ExpressionRef object);
  Result<ExpressionRef> ParseCall(ExpressionRef callee);
  Result<ExpressionRef> ParseFilter(ExpressionRef input);
  Result<ExpressionRef> ParseTest(ExpressionRef input);
  Result<CallArguments> ParseArguments();
  Result<std::string> ParseDottedName();
  // Whether the current token may start the bare argument of a test: `x is divisibleby 3`.
  bool AtTestArgument() const;

  const std::vector<Token>& tokens_;
  size_t next_ = 0;
  SyntaxTree& tree_;
  std::unordered_map<std::string, NameId> name_ids_;
  std::array<int, 4> special_name_uses_{};
};

}  // namespace hayate::text::jinja
