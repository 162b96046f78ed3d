// Any source: compiling and rendering end within their limits, without a crash. The first line is
// the context as JSON, the rest the template.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/template/json.h"
#include "text/template/template.h"

namespace jinja = hayate::text::jinja;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t newline = input.find('\n');
  if (newline == std::string_view::npos) return 0;
  const hayate::Result<jinja::Template> compiled =
      jinja::Template::Compile(input.substr(newline + 1));
  if (!compiled.ok()) return 0;
  const hayate::Result<jinja::Value> context = jinja::ParseJson(input.substr(0, newline));
  jinja::RenderOptions options;
  options.limits = {.max_steps = 20'000,
                    .max_output_bytes = size_t{1} << 18,
                    .max_memory_bytes = size_t{8} << 20,
                    .max_depth = 400};
  const bool has_context = context.ok() && context->is_dict();
  const hayate::Result<std::string> text =
      compiled->Render(has_context ? context->dict() : jinja::Dict{}, options);
  if (text.ok()) {
    CHECK_LE(text->size(), options.limits.max_output_bytes);
  }
  return 0;
}
