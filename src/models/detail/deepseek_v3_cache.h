#pragma once
// Where a DeepSeek V3 or V3.2 model keeps its rows: one group, whose page holds for every layer its
// latent rows and, for V3.2, its index keys. Every rank holds all of them.
//
//   page:  | layer 0: latent rows, index keys | layer 1: … |

#include "base/status.h"
#include "models/detail/deepseek_v3_config.h"
#include "models/registry.h"
#include "ops/sparse_attention/latent_rows.h"
#include "tensor/cache_layout.h"

namespace hayate::models {

// One layer's rows.
struct DeepseekV3LayerCache {
  ops::LatentLayerView latents, keys;  // keys: V3.2 alone
  bool packed = false;                 // index keys are stored transformed and quantised
};

class DeepseekV3Cache {
 public:
  // For the layers of the model, or `num_layers` others of their shape.
  static Result<DeepseekV3Cache> Plan(const DeepseekV3Config& config, const LoadOptions& options,
                                      int32_t num_layers);

  const CacheLayout& layout() const { return layout_; }
  int64_t page_bytes() const { return layout_.groups[0].page_bytes; }
  // Layer `layer` in the pool that begins at `base`.
  DeepseekV3LayerCache Layer(int layer, std::byte* base) const;

 private:
  ops::LatentLayerView latents_, keys_;  // without a base
  int64_t layer_bytes_ = 0, key_offset_ = 0;
  bool packed_ = false;
  CacheLayout layout_;
};

}  // namespace hayate::models
