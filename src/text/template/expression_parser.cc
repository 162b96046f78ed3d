#include "text/template/expression_parser.h"

#include <optional>

#include "base/error.h"

namespace hayate::text::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kText:
      return "template text";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kVariableBegin:
      return "'{{'";
    case Token::Kind::kVariableEnd:
      return "'}}'";
    case Token::Kind::kString:
      return "a string";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

// Counts one level of nesting while it lives.
class Nested {
 public:
  explicit Nested(int& level) : level_(level) { ++level_; }
  ~Nested() { --level_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int& level_;
};

std::optional<Comparison> ComparisonOf(const Token& token) {
  if (token.IsName("in")) return Comparison::kIn;
  if (token.kind != Token::Kind::kOperator) return std::nullopt;
  if (token.text == "==") return Comparison::kEqual;
  if (token.text == "!=") return Comparison::kNotEqual;
  if (token.text == "<") return Comparison::kLess;
  if (token.text == "<=") return Comparison::kLessEqual;
  if (token.text == ">") return Comparison::kGreater;
  if (token.text == ">=") return Comparison::kGreaterEqual;
  return std::nullopt;
}

std::optional<BinaryOperator> MultiplicativeOf(const Token& token) {
  if (token.kind != Token::Kind::kOperator) return std::nullopt;
  if (token.text == "*") return BinaryOperator::kMultiply;
  if (token.text == "/") return BinaryOperator::kDivide;
  if (token.text == "//") return BinaryOperator::kFloorDivide;
  if (token.text == "%") return BinaryOperator::kModulo;
  return std::nullopt;
}

}  // namespace

ExpressionParser::ExpressionParser(const std::vector<Token>& tokens, SyntaxTree& tree)
    : tokens_(tokens), tree_(tree) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) Intern(name);
}

NameId ExpressionParser::Intern(std::string_view name) {
  const auto [it, added] =
      name_ids_.emplace(std::string(name), static_cast<NameId>(tree_.names.size()));
  if (added) tree_.names.emplace_back(name);
  return it->second;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Take();
  return true;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Take();
  return true;
}

Status ExpressionParser::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? OkStatus() : Unexpected(fmt::format("'{}'", op));
}

Status ExpressionParser::ExpectName(std::string_view name) {
  return SkipName(name) ? OkStatus() : Unexpected(fmt::format("'{}'", name));
}

Status ExpressionParser::Expect(Token::Kind kind) {
  if (Current().kind != kind) return Unexpected(Describe({kind, "a name", {}}));
  Take();
  return OkStatus();
}

Status ExpressionParser::Unexpected(std::string_view expected) const {
  return ErrorAt(Current().position,
                 fmt::format("expected {}, got {}", expected, Describe(Current())));
}

Status ExpressionParser::CheckNesting() const {
  if (nesting <= kMaxNesting) return OkStatus();
  return ErrorAt(Current().position, fmt::format("nested more than {} levels deep", kMaxNesting));
}

Result<ExpressionRef> ExpressionParser::ParseTuple(ConditionAllowed condition) {
  const Position position = Current().position;
  std::vector<ExpressionRef> items;
  bool is_tuple = false;
  while (true) {
    const Token& token = Current();
    if (token.kind == Token::Kind::kVariableEnd || token.kind == Token::Kind::kBlockEnd ||
        token.IsOperator(")")) {
      break;
    }
    ASSIGN_OR_RETURN(const ExpressionRef item, condition == ConditionAllowed::kYes
                                                   ? ParseExpression()
                                                   : ParseWithoutCondition());
    items.push_back(item);
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return New(position, TupleDisplay{std::move(items)});
  if (items.empty()) return Unexpected("an expression");
  return items[0];
}

Result<ExpressionRef> ExpressionParser::ParseWithoutCondition() {
  const Nested nested(nesting);
  RETURN_IF_ERROR(CheckNesting());
  return ParseOr();
}

Result<ExpressionRef> ExpressionParser::ParseExpression() {
  const Nested nested(nesting);
  RETURN_IF_ERROR(CheckNesting());
  ASSIGN_OR_RETURN(ExpressionRef value, ParseOr());
  while (Current().IsName("if")) {
    const Position position = Take().position;
    ASSIGN_OR_RETURN(const ExpressionRef condition, ParseOr());
    ExpressionRef otherwise = nullptr;
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    value = New(position, Conditional{condition, value, otherwise});
  }
  return value;
}

Result<ExpressionRef> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionRef left, ParseAnd());
  while (Current().IsName("or")) {
    const Position position = Take().position;
    ASSIGN_OR_RETURN(const ExpressionRef right, ParseAnd());
    left = New(position, Logical{LogicalOperator::kOr, left, right});
  }
  return left;
}

Result<ExpressionRef> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionRef left, ParseNot());
  while (Current().IsName("and")) {
    const Position position = Take().position;
    ASSIGN_OR_RETURN(const ExpressionRef right, ParseNot());
    left = New(position, Logical{LogicalOperator::kAnd, left, right});
  }
  return left;
}

Result<ExpressionRef> ExpressionParser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  const Nested nested(nesting);
  RETURN_IF_ERROR(CheckNesting());
  const Position position = Take().position;
  ASSIGN_OR_RETURN(const ExpressionRef operand, ParseNot());
  return New(position, Unary{UnaryOperator::kNot, operand});
}

Result<ExpressionRef> ExpressionParser::ParseCompare() {
  const Position position = Current().position;
  ASSIGN_OR_RETURN(const ExpressionRef first, ParseAdditive());
  std::vector<std::pair<Comparison, ExpressionRef>> rest;
  while (true) {
    std::optional<Comparison> comparison = ComparisonOf(Current());
    if (!comparison && Current().IsName("not") && tokens_[next_ + 1].IsName("in")) {
      Take();
      comparison = Comparison::kNotIn;
    }
    if (!comparison) break;
    Take();
    ASSIGN_OR_RETURN(const ExpressionRef operand, ParseAdditive());
    rest.emplace_back(*comparison, operand);
  }
  if (rest.empty()) return first;
  return New(position, Compare{first, std::move(rest)});
}

Result<ExpressionRef> ExpressionParser::ParseAdditive() {
  ASSIGN_OR_RETURN(ExpressionRef left, ParseConcatenation());
  while (Current().IsOperator("+") || Current().IsOperator("-")) {
    const Token& op = Take();
    ASSIGN_OR_RETURN(const ExpressionRef right, ParseConcatenation());
    const BinaryOperator kind = op.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    left = New(op.position, Binary{kind, left, right});
  }
  return left;
}

Result<ExpressionRef> ExpressionParser::ParseConcatenation() {
  const Position position = Current().position;
  ASSIGN_OR_RETURN(const ExpressionRef first, ParseMultiplicative());
  std::vector<ExpressionRef> parts = {first};
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(const ExpressionRef part, ParseMultiplicative());
    parts.push_back(part);
  }
  if (parts.size() == 1) return first;
  return New(position, Concatenate{std::move(parts)});
}

Result<ExpressionRef> ExpressionParser::ParseMultiplicative() {
  ASSIGN_OR_RETURN(ExpressionRef left, ParsePower());
  while (const std::optional<BinaryOperator> op = MultiplicativeOf(Current())) {
    const Position position = Take().position;
    ASSIGN_OR_RETURN(const ExpressionRef right, ParsePower());
    left = New(position, Binary{*op, left, right});
  }
  return left;
}

// Left-associative, unlike Python's: jinja2 reads 2 ** 3 ** 2 as (2 ** 3) ** 2.
Result<ExpressionRef> ExpressionParser::ParsePower() {
  ASSIGN_OR_RETURN(ExpressionRef left, ParseUnary(FiltersAllowed::kYes));
  while (Current().IsOperator("**")) {
    const Position position = Take().position;
    ASSIGN_OR_RETURN(const ExpressionRef right, ParseUnary(FiltersAllowed::kYes));
    left = New(position, Binary{BinaryOperator::kPower, left, right});
  }
  return left;
}

Result<ExpressionRef> ExpressionParser::ParseUnary(FiltersAllowed filters) {
  const Nested nested(nesting);
  RETURN_IF_ERROR(CheckNesting());
  ExpressionRef operand = nullptr;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const Token& op = Take();
    ASSIGN_OR_RETURN(const ExpressionRef inner, ParseUnary(FiltersAllowed::kNo));
    const UnaryOperator kind = op.text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    operand = New(op.position, Unary{kind, inner});
  } else {
    ASSIGN_OR_RETURN(operand, ParsePrimary());
  }
  ASSIGN_OR_RETURN(operand, ParsePostfix(operand));
  if (filters == FiltersAllowed::kNo) return operand;
  return ParseFiltersAndTests(operand);
}

}  // namespace hayate::text::jinja
