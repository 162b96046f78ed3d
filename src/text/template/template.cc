#include "text/template/template.h"

#include "base/error.h"
#include "text/template/ast.h"
#include "text/template/interpreter.h"
#include "text/template/lexer.h"
#include "text/template/objects.h"
#include "text/template/parser.h"

namespace hayate::text::jinja {
namespace {

// The last name of `a.name`, `a['name']` or `name`.
std::string_view LastName(const Expression& expression, const SyntaxTree& tree) {
  if (const auto* variable = std::get_if<Variable>(&expression.node)) {
    return tree.names[variable->name];
  }
  if (const auto* attribute = std::get_if<Attribute>(&expression.node)) return attribute->name;
  if (const auto* subscript = std::get_if<Subscript>(&expression.node)) {
    const auto* key = std::get_if<Constant>(&subscript->index->node);
    if (key != nullptr && key->value.is_string()) return key->value.string();
  }
  return {};
}

}  // namespace

Result<Template> Template::Compile(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return Error(ErrorCode::kInvalidArgument, "the template has {} bytes, the limit is {}",
                 source.size(), kMaxSourceBytes);
  }
  ASSIGN_OR_RETURN(const std::vector<Token> tokens, Tokenize(source));
  ASSIGN_OR_RETURN(SyntaxTree tree, Parse(tokens));
  return Template(std::make_shared<const SyntaxTree>(std::move(tree)));
}

bool Template::LoopsOver(std::string_view name) const {
  for (const Statement& statement : tree_->statements) {
    const auto* loop = std::get_if<For>(&statement.node);
    if (loop != nullptr && LastName(*loop->iterable, *tree_) == name) return true;
  }
  return false;
}

Result<std::string> Template::Render(const Dict& context, const RenderOptions& options) const {
  State state(options);
  return Interpreter(*tree_, context, state).Run();
}

}  // namespace hayate::text::jinja
