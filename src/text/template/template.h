#pragma once
// Templates in the subset of Jinja that chat templates use, rendering as Python's jinja2 does with
// the settings of transformers' apply_chat_template: trim_blocks, lstrip_blocks, loop controls, the
// immutable sandbox, tojson without ASCII escapes, raise_exception, strftime_now, {% generation %}.
//
// Left out: includes and inheritance, recursive loops, `*args` in calls, filters for HTML pages,
// and integers beyond 64 bits. Of text marked by `safe` or `escape`, only `+` keeps the mark.
// Iterators (map, select…) can be walked again, where Python's are used up.

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/state.h"
#include "text/template/value.h"

namespace hayate::text::jinja {

struct SyntaxTree;

// Immutable; any number of threads may render it at once. Copies share the tree.
class Template {
 public:
  // A longer source is refused.
  static constexpr size_t kMaxSourceBytes = size_t{1} << 20;

  // Errors name line and column.
  static Result<Template> Compile(std::string_view source);

  // `context` holds the template's variables. Errors are kInvalidArgument with line and column,
  // except for those the template raises by raise_exception(message), which are the message alone.
  Result<std::string> Render(const Dict& context, const RenderOptions& options = {}) const;

  // Whether a loop walks an attribute or variable of this name, as `message.content` in
  // {% for part in message.content %}.
  bool LoopsOver(std::string_view name) const;

 private:
  explicit Template(std::shared_ptr<const SyntaxTree> tree) : tree_(std::move(tree)) {}

  std::shared_ptr<const SyntaxTree> tree_;
};

}  // namespace hayate::text::jinja
