#include "text/template/parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "text/template/expression_parser.h"

namespace hayate::text::jinja {
namespace {

using ConditionAllowed = ExpressionParser::ConditionAllowed;

class StatementParser {
 public:
  StatementParser(const std::vector<Token>& tokens, SyntaxTree& tree)
      : tree_(tree), in_(tokens, tree) {}

  // Statements up to a tag whose name is in `ends` (its name is then the current token), or up to
  // the end of the template if `ends` is empty.
  Result<Body> ParseBody(std::initializer_list<std::string_view> ends) {
    ++in_.nesting;
    RETURN_IF_ERROR(in_.CheckNesting());
    const Position opened = in_.Current().position;
    Body body;
    while (true) {
      const Token& token = in_.Current();
      switch (token.kind) {
        case Token::Kind::kText:
          body.push_back(New(token.position, Text{in_.Take().text}));
          continue;
        case Token::Kind::kVariableBegin: {
          in_.Take();
          ASSIGN_OR_RETURN(const ExpressionRef value, in_.ParseTuple(ConditionAllowed::kYes));
          RETURN_IF_ERROR(in_.Expect(Token::Kind::kVariableEnd));
          body.push_back(New(token.position, Output{value}));
          continue;
        }
        case Token::Kind::kBlockBegin: {
          in_.Take();
          const Token& tag = in_.Current();
          if (tag.kind == Token::Kind::kName &&
              std::find(ends.begin(), ends.end(), tag.text) != ends.end()) {
            --in_.nesting;
            return body;
          }
          ASSIGN_OR_RETURN(const Statement* statement, ParseTag());
          body.push_back(statement);
          continue;
        }
        default:
          break;
      }
      if (token.kind == Token::Kind::kEnd && ends.size() == 0) {
        --in_.nesting;
        return body;
      }
      return ErrorAt(opened, fmt::format("this block is never closed: '{{% {} %}}' is missing",
                                         ends.size() > 0 ? *(ends.end() - 1) : ""));
    }
  }

 private:
  template <typename Node>
  const Statement* New(Position position, Node node) {
    tree_.statements.push_back({position, std::move(node)});
    return &tree_.statements.back();
  }

  Status EndTag() { return in_.Expect(Token::Kind::kBlockEnd); }

  // The rest of an opening tag, the body, and its closing tag {% end %}.
  Result<Body> ParseBodyAndEnd(std::string_view end) {
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(Body body, ParseBody({end}));
    in_.Take();
    RETURN_IF_ERROR(EndTag());
    return body;
  }

  // Current token: the name of the tag.
  Result<const Statement*> ParseTag() {
    const Token& tag = in_.Current();
    if (tag.kind != Token::Kind::kName) return in_.Unexpected("the name of a tag");
    in_.Take();
    if (tag.text == "if") return ParseIf(tag.position);
    if (tag.text == "for") return ParseFor(tag.position);
    if (tag.text == "set") return ParseSet(tag.position);
    if (tag.text == "macro") return ParseMacro(tag.position);
    if (tag.text == "call") return ParseCallBlock(tag.position);
    if (tag.text == "filter") return ParseFilterBlock(tag.position);
    if (tag.text == "with") return ParseWith(tag.position);
    if (tag.text == "generation") return ParseGeneration(tag.position);
    if (tag.text == "break" || tag.text == "continue") return ParseLoopControl(tag);
    return ErrorAt(tag.position, fmt::format("unknown or unsupported tag '{}'", tag.text));
  }

  Result<const Statement*> ParseIf(Position position) {
    If node;
    while (true) {
      ASSIGN_OR_RETURN(const ExpressionRef condition, in_.ParseTuple(ConditionAllowed::kNo));
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(Body body, ParseBody({"elif", "else", "endif"}));
      node.branches.push_back({condition, std::move(body)});
      if (!in_.SkipName("elif")) break;
    }
    if (in_.SkipName("else")) {
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(node.otherwise, ParseBody({"endif"}));
    }
    RETURN_IF_ERROR(in_.ExpectName("endif"));
    RETURN_IF_ERROR(EndTag());
    return New(position, std::move(node));
  }

  Result<const Statement*> ParseFor(Position position) {
    For node;
    ASSIGN_OR_RETURN(node.target, ParseTargets("in"));
    RETURN_IF_ERROR(in_.ExpectName("in"));
    ASSIGN_OR_RETURN(node.iterable, in_.ParseTuple(ConditionAllowed::kNo));
    node.filter = nullptr;
    if (in_.SkipName("if")) {
      ASSIGN_OR_RETURN(node.filter, in_.ParseExpression());
    }
    if (in_.Current().IsName("recursive")) {
      return ErrorAt(in_.Current().position, "recursive loops are not supported");
    }
    RETURN_IF_ERROR(EndTag());
    const int macros_before = macros_;
    ++loops_;
    Result<Body> body = ParseBody({"else", "endfor"});
    --loops_;
    ASSIGN_OR_RETURN(node.body, std::move(body));
    node.keeps_scope = macros_ > macros_before;
    if (in_.SkipName("else")) {
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(node.otherwise, ParseBody({"endfor"}));
    }
    RETURN_IF_ERROR(in_.ExpectName("endfor"));
    RETURN_IF_ERROR(EndTag());
    return New(position, std::move(node));
  }

  // One target, or several with commas between them; stops at the name `end` too.
  Result<Target> ParseTargets(std::string_view end) {
    const Position position = in_.Current().position;
    std::vector<Target> targets;
    bool is_tuple = false;
    while (in_.Current().kind == Token::Kind::kName || in_.Current().IsOperator("(")) {
      if (in_.Current().IsName(end) && !targets.empty()) break;
      ASSIGN_OR_RETURN(Target target, ParseTarget());
      targets.push_back(std::move(target));
      if (!in_.SkipOperator(",")) break;
      is_tuple = true;
    }
    if (targets.empty()) return in_.Unexpected("a name to assign to");
    if (!is_tuple) return std::move(targets[0]);
    Target tuple;
    tuple.position = position;
    tuple.elements = std::move(targets);
    return tuple;
  }

  Result<Target> ParseTarget() {
    ++in_.nesting;
    RETURN_IF_ERROR(in_.CheckNesting());
    Target target;
    target.position = in_.Current().position;
    if (in_.SkipOperator("(")) {
      ASSIGN_OR_RETURN(target, ParseTargets(")"));
      RETURN_IF_ERROR(in_.ExpectOperator(")"));
    } else {
      const Token& token = in_.Current();
      static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                        "False", "none", "None"};
      if (token.kind != Token::Kind::kName) return in_.Unexpected("a name to assign to");
      if (std::find(std::begin(kConstants), std::end(kConstants), token.text) !=
          std::end(kConstants)) {
        return ErrorAt(token.position, fmt::format("cannot assign to '{}'", token.text));
      }
      target.name = in_.Intern(in_.Take().text);
      if (in_.SkipOperator(".")) {
        if (in_.Current().kind != Token::Kind::kName) return in_.Unexpected("an attribute name");
        target.attribute = in_.Take().text;
      }
    }
    --in_.nesting;
    return target;
  }

  Result<const Statement*> ParseSet(Position position) {
    ASSIGN_OR_RETURN(Target target, ParseTargets("="));
    if (in_.SkipOperator("=")) {
      ASSIGN_OR_RETURN(const ExpressionRef value, in_.ParseTuple(ConditionAllowed::kYes));
      RETURN_IF_ERROR(EndTag());
      return New(position, Assign{std::move(target), value});
    }
    ExpressionRef filter = nullptr;
    if (in_.SkipOperator("|")) {
      ASSIGN_OR_RETURN(filter, in_.ParseFilters(nullptr));
    }
    ASSIGN_OR_RETURN(Body body, ParseBodyAndEnd("endset"));
    return New(position, AssignBlock{std::move(target), filter, std::move(body)});
  }

  // "(a, b=1)" into `macro`.
  Status ParseSignature(MacroDefinition& macro) {
    RETURN_IF_ERROR(in_.ExpectOperator("("));
    while (!in_.SkipOperator(")")) {
      if (!macro.parameters.empty()) RETURN_IF_ERROR(in_.ExpectOperator(","));
      const Token& token = in_.Current();
      if (token.kind != Token::Kind::kName) return in_.Unexpected("a parameter name");
      const NameId name = in_.Intern(in_.Take().text);
      ExpressionRef default_value = nullptr;
      if (in_.SkipOperator("=")) {
        ASSIGN_OR_RETURN(default_value, in_.ParseExpression());
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        return ErrorAt(token.position, "a parameter without a default follows one with a default");
      }
      macro.parameters.push_back({name, default_value});
    }
    return OkStatus();
  }

  Status ParseMacroBody(MacroDefinition& macro, std::string_view end) {
    ++macros_;
    const int outer_loops = std::exchange(loops_, 0);  // no break out of a macro
    const std::array<int, 4> before = in_.special_name_uses();
    ASSIGN_OR_RETURN(macro.body, ParseBodyAndEnd(end));
    const std::array<int, 4>& after = in_.special_name_uses();
    macro.uses_caller = after[kCallerName] > before[kCallerName];
    macro.uses_varargs = after[kVarargsName] > before[kVarargsName];
    macro.uses_kwargs = after[kKwargsName] > before[kKwargsName];
    loops_ = outer_loops;
    return OkStatus();
  }

  Result<const Statement*> ParseMacro(Position position) {
    if (in_.Current().kind != Token::Kind::kName) return in_.Unexpected("the macro's name");
    DefineMacro node;
    node.macro.name = in_.Take().text;
    node.name = in_.Intern(node.macro.name);
    RETURN_IF_ERROR(ParseSignature(node.macro));
    RETURN_IF_ERROR(ParseMacroBody(node.macro, "endmacro"));
    return New(position, std::move(node));
  }

  Result<const Statement*> ParseCallBlock(Position position) {
    CallBlock node;
    node.caller.name = "caller";
    if (in_.Current().IsOperator("(")) RETURN_IF_ERROR(ParseSignature(node.caller));
    const Position call_position = in_.Current().position;
    ASSIGN_OR_RETURN(node.call, in_.ParseExpression());
    if (!std::holds_alternative<Call>(node.call->node)) {
      return ErrorAt(call_position, "a call block needs a call: {% call name(…) %}");
    }
    RETURN_IF_ERROR(ParseMacroBody(node.caller, "endcall"));
    return New(position, std::move(node));
  }

  Result<const Statement*> ParseFilterBlock(Position position) {
    FilterBlock node;
    ASSIGN_OR_RETURN(node.filter, in_.ParseFilters(nullptr));
    ASSIGN_OR_RETURN(node.body, ParseBodyAndEnd("endfilter"));
    return New(position, std::move(node));
  }

  Result<const Statement*> ParseWith(Position position) {
    Scope node;
    while (in_.Current().kind != Token::Kind::kBlockEnd) {
      if (!node.assignments.empty()) RETURN_IF_ERROR(in_.ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, ParseTarget());
      RETURN_IF_ERROR(in_.ExpectOperator("="));
      ASSIGN_OR_RETURN(const ExpressionRef value, in_.ParseExpression());
      node.assignments.emplace_back(std::move(target), value);
    }
    ASSIGN_OR_RETURN(node.body, ParseBodyAndEnd("endwith"));
    return New(position, std::move(node));
  }

  // Marks the assistant's tokens for training; for a prompt only its body counts.
  Result<const Statement*> ParseGeneration(Position position) {
    Scope node;
    ASSIGN_OR_RETURN(node.body, ParseBodyAndEnd("endgeneration"));
    return New(position, std::move(node));
  }

  Result<const Statement*> ParseLoopControl(const Token& tag) {
    if (loops_ == 0) return ErrorAt(tag.position, fmt::format("'{}' outside of a loop", tag.text));
    RETURN_IF_ERROR(EndTag());
    return tag.text == "break" ? New(tag.position, Break{}) : New(tag.position, Continue{});
  }

  SyntaxTree& tree_;
  ExpressionParser in_;
  int loops_ = 0;   // loops around the current statement, within its macro
  int macros_ = 0;  // macros and call blocks seen so far
};

}  // namespace

Result<SyntaxTree> Parse(const std::vector<Token>& tokens) {
  SyntaxTree tree;
  StatementParser parser(tokens, tree);
  ASSIGN_OR_RETURN(Body body, parser.ParseBody({}));
  tree.body = std::move(body);
  return tree;
}

}  // namespace hayate::text::jinja
