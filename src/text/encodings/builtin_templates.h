#pragma once
// Chat templates of models that ship none, or whose files may lack theirs: what their vendors
// define in code, as templates.

#include <string_view>

namespace hayate::text {

// The template of an architecture as config.json or a GGUF file spells it
// ("DeepseekV4ForCausalLM", "gpt-oss"); empty when there is none here.
std::string_view BuiltInTemplate(std::string_view architecture);

}  // namespace hayate::text
