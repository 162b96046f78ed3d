#pragma once
// What becomes of the requests under way while generation is paused.

#include <cstdint>

namespace hayate::engine {

enum class PauseMode : uint8_t {
  kAbort,    // they end as cancelled
  kRetract,  // they give up slot and pages and are computed again: the weights may change
  kInPlace,  // they keep both and go on where they were
};

}  // namespace hayate::engine
