#pragma once
// Names that routers give to prefixes of a prompt, which they know as text and the cache as tokens.

#include <cstdint>

namespace hayate {

struct PrefixKey {
  uint64_t hash = 0;
  int32_t num_tokens = 0;  // of the prompt: the prefix so named is no longer
};

// A page of the cache took on a name, or went with it. Several pages may have one name.
struct PrefixKeyChange {
  uint64_t hash = 0;
  bool held = false;

  bool operator==(const PrefixKeyChange&) const = default;
};

}  // namespace hayate
