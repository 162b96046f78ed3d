#include "text/template/template.h"

#include "base/error.h"
#include "text/template/ast.h"
#include "text/template/interpreter.h"
#include "text/template/lexer.h"
#include "text/template/objects.h"
#include "text/template/parser.h"

namespace hayate::text::jinja {

Result<Template> Template::Compile(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return Error(ErrorCode::kInvalidArgument, "the template has {} bytes, the limit is {}",
                 source.size(), kMaxSourceBytes);
  }
  ASSIGN_OR_RETURN(const std::vector<Token> tokens, Tokenize(source));
  ASSIGN_OR_RETURN(SyntaxTree tree, Parse(tokens));
  return Template(std::make_shared<const SyntaxTree>(std::move(tree)));
}

Result<std::string> Template::Render(const Dict& context, const RenderOptions& options) const {
  State state(options);
  return Interpreter(*tree_, context, state).Run();
}

}  // namespace hayate::text::jinja
