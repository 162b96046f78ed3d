#include "models/detail/dense_cache.h"

#include <algorithm>

#include "models/detail/dense_weights.h"

namespace hayate::models {

Result<DenseCache> DenseCache::Plan(const weights::Checkpoint& checkpoint,
                                    const ModelConfig& config, const LoadOptions& options) {
  DenseCache cache;
  std::vector<int32_t> windows = config.windows;
  std::ranges::sort(windows);
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  cache.num_layers_.assign(windows.size(), 0);
  for (const int32_t window : config.windows) {
    const int group = static_cast<int>(std::ranges::lower_bound(windows, window) - windows.begin());
    cache.places_.push_back({group, cache.num_layers_[static_cast<size_t>(group)]++});
  }

  const auto layer_bytes = [&](int64_t kv_heads) {
    return ops::KvLayerPageBytes(options.kv_dtype, options.page_tokens,
                                 static_cast<int32_t>(kv_heads), config.head_dim);
  };
  int64_t most_heads = 0, own_heads = 0;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    ASSIGN_OR_RETURN(const HeadShard heads, PlanHeads(checkpoint, config, rank, options.num_ranks));
    most_heads = std::max(most_heads, heads.kv.size());
    if (rank == options.rank) own_heads = heads.kv.size();
  }
  cache.layer_bytes_ = own_heads == 0 ? 0 : layer_bytes(own_heads);
  cache.shape_ = {.dtype = options.kv_dtype,
                  .page_tokens = options.page_tokens,
                  .num_kv_heads = static_cast<int32_t>(own_heads),
                  .head_dim = config.head_dim};

  cache.layout_.page_tokens = options.page_tokens;
  for (size_t g = 0; g < windows.size(); ++g) {
    const bool full = windows[g] == 0;
    cache.layout_.groups.push_back({.name = full ? "kv" : "kv_window_" + std::to_string(windows[g]),
                                    .kind = full ? CacheKind::kFull : CacheKind::kWindow,
                                    .window = windows[g],
                                    .page_bytes = cache.num_layers_[g] * layer_bytes(most_heads)});
  }
  return cache;
}

ops::KvLayerView DenseCache::View(int layer, std::byte* base) const {
  const Place& place = places_[static_cast<size_t>(layer)];
  ops::KvLayerView view = shape_;
  view.base = base + place.index * layer_bytes_;
  view.page_stride = page_bytes(place.group);
  return view;
}

}  // namespace hayate::models
