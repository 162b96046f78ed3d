#include "text/template/expression_parser.h"

#include <charconv>

#include "base/error.h"
#include "text/template/filters.h"
#include "text/template/value_tests.h"

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

std::optional<Value> NamedConstant(std::string_view name) {
  if (name == "true" || name == "True") return Value::Bool(true);
  if (name == "false" || name == "False") return Value::Bool(false);
  if (name == "none" || name == "None") return Value::None();
  return std::nullopt;
}

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

Result<ExpressionRef> ExpressionParser::ParsePrimary() {
  const Token& token = Current();
  switch (token.kind) {
    case Token::Kind::kName:
      return ParseNameOrConstant();
    case Token::Kind::kString: {
      std::string text;
      while (Current().kind == Token::Kind::kString) text += Take().text;
      return New(token.position, Constant{Value::String(std::move(text))});
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (token.IsOperator("(")) return ParseParenthesized();
  if (token.IsOperator("[")) return ParseListDisplay();
  if (token.IsOperator("{")) return ParseDictDisplay();
  return Unexpected("an expression");
}

Result<ExpressionRef> ExpressionParser::ParseNameOrConstant() {
  const Token& token = Take();
  if (std::optional<Value> constant = NamedConstant(token.text)) {
    return New(token.position, Constant{std::move(*constant)});
  }
  const NameId name = Intern(token.text);
  if (name < special_name_uses_.size()) ++special_name_uses_[name];
  return New(token.position, Variable{name});
}

Result<ExpressionRef> ExpressionParser::ParseNumber() {
  const Token& token = Take();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == Token::Kind::kFloat) {
    double value = 0.0;
    // Out of range reads as infinity or zero, as in Python.
    if (std::from_chars(begin, end, value).ec == std::errc::result_out_of_range) {
      value = std::strtod(begin, nullptr);
    }
    return New(token.position, Constant{Value::Float(value)});
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0' && token.text[1] > '9') {
    base = token.text[1] == 'x' ? 16 : token.text[1] == 'o' ? 8 : 2;
    begin += 2;
  }
  int64_t value = 0;
  if (std::from_chars(begin, end, value, base).ec != std::errc()) {
    return ErrorAt(token.position, fmt::format("{} does not fit 64 bits", token.text));
  }
  return New(token.position, Constant{Value::Int(value)});
}

Result<ExpressionRef> ExpressionParser::ParseParenthesized() {
  const Position position = Take().position;
  if (SkipOperator(")")) return New(position, TupleDisplay{});
  ASSIGN_OR_RETURN(const ExpressionRef inner, ParseTuple(ConditionAllowed::kYes));
  RETURN_IF_ERROR(ExpectOperator(")"));
  return inner;
}

Result<ExpressionRef> ExpressionParser::ParseListDisplay() {
  const Position position = Take().position;
  std::vector<ExpressionRef> items;
  while (!SkipOperator("]")) {
    if (!items.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    if (SkipOperator("]")) break;
    ASSIGN_OR_RETURN(const ExpressionRef item, ParseExpression());
    items.push_back(item);
  }
  return New(position, ListDisplay{std::move(items)});
}

Result<ExpressionRef> ExpressionParser::ParseDictDisplay() {
  const Position position = Take().position;
  std::vector<std::pair<ExpressionRef, ExpressionRef>> entries;
  while (!SkipOperator("}")) {
    if (!entries.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    if (SkipOperator("}")) break;
    ASSIGN_OR_RETURN(const ExpressionRef key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(const ExpressionRef value, ParseExpression());
    entries.emplace_back(key, value);
  }
  return New(position, DictDisplay{std::move(entries)});
}

Result<ExpressionRef> ExpressionParser::ParsePostfix(ExpressionRef operand) {
  while (true) {
    if (Current().IsOperator(".")) {
      ASSIGN_OR_RETURN(operand, ParseAttribute(operand));
    } else if (Current().IsOperator("[")) {
      ASSIGN_OR_RETURN(operand, ParseSubscript(operand));
    } else if (Current().IsOperator("(")) {
      ASSIGN_OR_RETURN(operand, ParseCall(operand));
    } else {
      return operand;
    }
  }
}

Result<ExpressionRef> ExpressionParser::ParseFiltersAndTests(ExpressionRef operand) {
  while (true) {
    if (SkipOperator("|")) {
      ASSIGN_OR_RETURN(operand, ParseFilter(operand));
    } else if (Current().IsName("is")) {
      ASSIGN_OR_RETURN(operand, ParseTest(operand));
    } else if (Current().IsOperator("(")) {
      ASSIGN_OR_RETURN(operand, ParseCall(operand));
    } else {
      return operand;
    }
  }
}

Result<ExpressionRef> ExpressionParser::ParseAttribute(ExpressionRef object) {
  const Position position = Take().position;
  if (Current().kind == Token::Kind::kInteger) {
    ASSIGN_OR_RETURN(const ExpressionRef index, ParseNumber());
    return New(position, Subscript{object, index});
  }
  if (Current().kind != Token::Kind::kName) return Unexpected("a name after '.'");
  return New(position, Attribute{object, Take().text});
}

Result<ExpressionRef> ExpressionParser::ParseSubscript(ExpressionRef object) {
  const Position position = Take().position;
  ExpressionRef parts[3] = {nullptr, nullptr, nullptr};
  int part = 0;
  while (!Current().IsOperator("]") && !Current().IsOperator(",")) {
    if (Current().IsOperator(":")) {
      if (++part == 3) return Unexpected("']'");
      Take();
      continue;
    }
    if (parts[part] != nullptr) return Unexpected("']'");
    ASSIGN_OR_RETURN(parts[part], ParseExpression());
  }
  if (part > 0) {
    RETURN_IF_ERROR(ExpectOperator("]"));
    return New(position, Slice{object, parts[0], parts[1], parts[2]});
  }
  if (parts[0] == nullptr) return Unexpected("a subscript");
  RETURN_IF_ERROR(ExpectOperator("]"));
  return New(position, Subscript{object, parts[0]});
}

Result<CallArguments> ExpressionParser::ParseArguments() {
  CallArguments arguments;
  RETURN_IF_ERROR(ExpectOperator("("));
  bool first = true;
  while (!SkipOperator(")")) {
    if (!first) RETURN_IF_ERROR(ExpectOperator(","));
    first = false;
    if (SkipOperator(")")) break;
    if (Current().IsOperator("*") || Current().IsOperator("**")) {
      return ErrorAt(Current().position, "unpacking arguments with '*' is not supported");
    }
    if (Current().kind == Token::Kind::kName && tokens_[next_ + 1].IsOperator("=")) {
      std::string name = Take().text;
      Take();
      ASSIGN_OR_RETURN(const ExpressionRef value, ParseExpression());
      arguments.keyword.emplace_back(std::move(name), value);
      continue;
    }
    if (!arguments.keyword.empty()) return Unexpected("a keyword argument");
    ASSIGN_OR_RETURN(const ExpressionRef value, ParseExpression());
    arguments.positional.push_back(value);
  }
  return arguments;
}

Result<ExpressionRef> ExpressionParser::ParseCall(ExpressionRef callee) {
  const Position position = Current().position;
  ASSIGN_OR_RETURN(CallArguments arguments, ParseArguments());
  return New(position, Call{callee, std::move(arguments)});
}

Result<std::string> ExpressionParser::ParseDottedName() {
  if (Current().kind != Token::Kind::kName) return Unexpected("a name");
  std::string name = Take().text;
  while (SkipOperator(".")) {
    if (Current().kind != Token::Kind::kName) return Unexpected("a name");
    name += '.';
    name += Take().text;
  }
  return name;
}

Result<ExpressionRef> ExpressionParser::ParseFilter(ExpressionRef input) {
  const Position position = Current().position;
  ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  CallArguments arguments;
  if (Current().IsOperator("(")) {
    ASSIGN_OR_RETURN(arguments, ParseArguments());
  }
  const Function filter = FindFilter(name);
  return New(position, FilterCall{input, std::move(name), filter, std::move(arguments)});
}

Result<ExpressionRef> ExpressionParser::ParseFilters(ExpressionRef input) {
  do {
    ASSIGN_OR_RETURN(input, ParseFilter(input));
  } while (SkipOperator("|"));
  return input;
}

bool ExpressionParser::AtTestArgument() const {
  const Token& token = Current();
  switch (token.kind) {
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    case Token::Kind::kName:
      return token.text != "else" && token.text != "or" && token.text != "and";
    default:
      return token.IsOperator("[") || token.IsOperator("{");
  }
}

Result<ExpressionRef> ExpressionParser::ParseTest(ExpressionRef input) {
  const Position position = Take().position;
  const bool negated = SkipName("not");
  ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  CallArguments arguments;
  if (Current().IsOperator("(")) {
    ASSIGN_OR_RETURN(arguments, ParseArguments());
  } else if (AtTestArgument()) {
    if (Current().IsName("is")) return ErrorAt(Current().position, "tests cannot be chained");
    ASSIGN_OR_RETURN(ExpressionRef argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(argument));
    arguments.positional.push_back(argument);
  }
  const TestFunction test = FindTest(name);
  const ExpressionRef call =
      New(position, TestCall{input, std::move(name), test, std::move(arguments)});
  return negated ? New(position, Unary{UnaryOperator::kNot, call}) : call;
}

}  // namespace hayate::text::jinja
