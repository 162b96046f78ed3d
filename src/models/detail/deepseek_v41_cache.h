#pragma once
// Where a DeepSeek V4.1 model keeps what it remembers. Cache groups, of pages of P tokens, P a
// multiple of every ratio:
//
//   window          kWindow(W)      per layer a latent row per token
//   entries_m       kCompressed(m)  per source layer of ratio m (kFull for m = 1) a latent row and
//                                   an index key per entry
//   pending         kState          per source layer of ratio > 1 its unfinished block, and what
//   takes
//                                   back refused drafts; empty at every page border
//   engram_tokens   kWindow(N)      the compressed id of every token
//
// So a prefix of whole pages can be resumed where its last page has its window parts. With replay
// (LoadOptions::window_reuse) the window is no part of a prefix and the ids are kFull.

#include "models/detail/deepseek_trunk_cache.h"
#include "models/detail/deepseek_v41_config.h"

namespace hayate::models {

// Entries, keys and states are of source layers.
class DeepseekV41Cache : public DeepseekTrunkCache {
 public:
  // kInvalidArgument for a page size or a cache type that cannot work with the config.
  static Result<DeepseekV41Cache> Plan(const DeepseekV41Config& config, const LoadOptions& options);

  int engram_group() const { return engram_group_; }  // −1: there is none

 private:
  DeepseekV41Cache(const DeepseekV41Config& config, const LoadOptions& options,
                   const TrunkRowFormats& formats);

  int engram_group_ = -1;
};

}  // namespace hayate::models
