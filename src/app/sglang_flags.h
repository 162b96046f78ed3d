#pragma once
// What becomes of SGLang's flags that Hayate does not have.

#include <string>
#include <string_view>

namespace hayate::app {

// "it is SGLang's: Hayate …" for a flag of SGLang's server ("--trust-remote-code"); empty for
// others.
std::string AdviceOnSglangFlag(std::string_view flag);

}  // namespace hayate::app
