#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "text/template/expression_parser.h"
#include "text/template/filters.h"
#include "text/template/value_tests.h"

namespace hayate::text::jinja {
namespace {

std::optional<Value> NamedConstant(std::string_view name) {
  if (name == "true" || name == "True") return Value::Bool(true);
  if (name == "false" || name == "False") return Value::Bool(false);
  if (name == "none" || name == "None") return Value::None();
  return std::nullopt;
}

}  // namespace

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
