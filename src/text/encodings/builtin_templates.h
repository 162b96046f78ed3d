#pragma once
// Chat templates of models that ship none: what their vendors define in code, as templates.

#include <string_view>

namespace hayate::text {

// The template of an architecture as config.json spells it ("DeepseekV4ForCausalLM"); empty when
// there is none here.
std::string_view BuiltInTemplate(std::string_view architecture);

}  // namespace hayate::text
