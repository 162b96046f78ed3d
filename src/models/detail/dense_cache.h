#pragma once
// Where a dense decoder keeps its keys and values: layers with equal windows form a cache group,
// and a page of a group holds all its layers, one after the other.
//
//   page p of a group:  | layer a: K V | layer b: K V | …      stride page_bytes(group)

#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/registry.h"
#include "ops/attention/paged_attention.h"
#include "tensor/cache_layout.h"

namespace hayate::models {

class DenseCache {
 public:
  static Result<DenseCache> Plan(const weights::Checkpoint& checkpoint, const ModelConfig& config,
                                 const LoadOptions& options);

  const CacheLayout& layout() const { return layout_; }
  int group(int layer) const { return places_[static_cast<size_t>(layer)].group; }
  // On this rank.
  int64_t page_bytes(int group) const {
    return num_layers_[static_cast<size_t>(group)] * layer_bytes_;
  }
  // Layer `layer` in its group's pool, which begins at `base`.
  ops::KvLayerView View(int layer, std::byte* base) const;

 private:
  struct Place {
    int group = 0;
    int64_t index = 0;  // among the group's layers
  };

  CacheLayout layout_;
  std::vector<Place> places_;        // [num_layers]
  std::vector<int64_t> num_layers_;  // per group
  int64_t layer_bytes_ = 0;          // of one layer of one page on this rank
  ops::KvLayerView shape_;           // without its base
};

}  // namespace hayate::models
