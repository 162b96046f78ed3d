#pragma once
// A draft block of DeepSeek V4 or V4.1: a layer of a window alone, whose rows lie in the drafter's
// own cache group, beside those of the other blocks.

#include "models/detail/deepseek_draft_rows.h"
#include "models/detail/deepseek_trunk_model.h"

namespace hayate::models {

// The blocks' window rows, one group: | block 0's rows | block 1's rows | …
class DraftWindow {
 public:
  DraftWindow(const DeepseekTrunkModel& target, int32_t num_blocks);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  // Block `block`'s rows in the pool that begins at `base`.
  ops::LatentLayerView Rows(int32_t block, std::byte* base) const;
  // The same shape for pages of `page_rows` rows that lie elsewhere.
  ops::LatentLayerView Pages(int32_t page_rows, std::byte* base) const;

 private:
  std::vector<CacheGroup> groups_;
  ops::LatentLayerView shape_;  // without a base
};

// "<prefix>" with its gate's bias.
Status LoadDraftLayer(VendorTensors& tensors, const DeepseekTrunkConfig& config,
                      const TrunkShards& shards, const std::string& prefix, HyperLayer& layer);

}  // namespace hayate::models
