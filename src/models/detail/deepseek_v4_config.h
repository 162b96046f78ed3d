#pragma once
// What a DeepSeek V4 trunk is made of, read from the vendor's config.json.

#include <cstdint>

#include "models/detail/deepseek_trunk_config.h"

namespace hayate::models {

struct DeepseekV4Config : DeepseekTrunkConfig {
  int32_t num_hash_layers = 0;  // the first layers choose experts by token id

  // Layers of this ratio overlap their blocks and have an indexer; those of any other ratio pool
  // plainly and attend to every entry.
  static constexpr int32_t kOverlapRatio = 4;
  bool has_indexer(int layer) const { return ratio(layer) == kOverlapRatio; }
};

// Errors as ReadTrunkConfig.
Result<DeepseekV4Config> ReadDeepseekV4Config(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
