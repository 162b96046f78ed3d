#include "text/encodings/builtin_templates.h"

#include <utility>

namespace hayate::text {
namespace {

constexpr std::string_view kDeepseekV32 =
#include "text/encodings/deepseek_v32.jinja.inc"
    ;
constexpr std::string_view kDeepseekV4 =
#include "text/encodings/deepseek_v4.jinja.inc"
    ;
constexpr std::string_view kDeepseekV41 =
#include "text/encodings/deepseek_v41.jinja.inc"
    ;
constexpr std::string_view kGptOss =
#include "text/encodings/gpt_oss.jinja.inc"
    ;

constexpr std::pair<std::string_view, std::string_view> kTemplates[] = {
    {"DeepseekV32ForCausalLM", kDeepseekV32},
    {"DeepseekV4ForCausalLM", kDeepseekV4},
    {"DeepseekV41ForCausalLM", kDeepseekV41},
    {"GptOssForCausalLM", kGptOss},
    {"gpt-oss", kGptOss},
};

// The files begin and end with a line break inside the literal.
constexpr std::string_view Trimmed(std::string_view text) {
  return text.substr(1, text.size() - 2);
}

}  // namespace

std::string_view BuiltInTemplate(std::string_view architecture) {
  for (const auto& [name, text] : kTemplates) {
    if (name == architecture) return Trimmed(text);
  }
  return {};
}

}  // namespace hayate::text
