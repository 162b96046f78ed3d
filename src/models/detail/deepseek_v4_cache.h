#pragma once
// Where a DeepSeek V4 model keeps what it remembers. Cache groups, of pages of P tokens, P a
// multiple of every compression ratio:
//
//   window          kWindow(W)        per layer a latent row per token
//   compressed_m    kCompressed(m)    per layer of ratio m a latent row per entry; for overlapping
//                                     layers then an index key per entry
//   overlap         kWindow(2·ratio)  per overlapping layer the first halves of the page's last
//                                     block: what the next page begins with
//   pending         kState            per compressed layer its unfinished block, and what takes
//   back
//                                     refused drafts; empty at every page border
//
// So a prefix of whole pages can be resumed where its last page has its window and overlap parts.

#include <vector>

#include "models/detail/deepseek_trunk_cache.h"
#include "models/detail/deepseek_v4_config.h"

namespace hayate::models {

class DeepseekV4Cache : public DeepseekTrunkCache {
 public:
  // kInvalidArgument for a page size or a cache type that cannot work with the config.
  static Result<DeepseekV4Cache> Plan(const DeepseekV4Config& config, const LoadOptions& options);

  // One overlapping layer's states, for a pool of their group that starts at `base`.
  ops::CompressorStates Overlap(int layer, std::byte* base) const;
  ops::CompressorStates IndexOverlap(int layer, std::byte* base) const;
  ops::CompressorStates IndexPending(int layer, std::byte* base) const;

 private:
  struct Place {  // byte offsets inside a page of the group
    int64_t overlap = 0, index_overlap = 0, index_pending = 0;
  };
  DeepseekV4Cache(const DeepseekV4Config& config, const LoadOptions& options,
                  const TrunkRowFormats& formats);
  const Place& place(int layer) const { return overlapping_[static_cast<size_t>(layer)]; }

  std::vector<Place> overlapping_;  // [num_layers]; of overlapping layers
};

}  // namespace hayate::models
