#include "models/detail/deepseek_v4_cache.h"

#include <algorithm>

namespace hayate::models {

DeepseekV4Cache::DeepseekV4Cache(const DeepseekV4Config& config, const LoadOptions& options,
                                 const TrunkRowFormats& formats)
    : DeepseekTrunkCache(config, options, formats, "compressed"),
      overlapping_(config.ratios.size()) {
  constexpr int32_t kOverlap = DeepseekV4Config::kOverlapRatio;
  if (std::ranges::count(ratios(), kOverlap) > 0) {
    states_.overlap =
        AddGroup({.name = "overlap", .kind = CacheKind::kWindow, .window = 2 * kOverlap});
  }
  if (!ratios().empty()) AddPendingGroup();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int32_t ratio = config.ratio(layer), d = config.head_dim, index = config.index_dim;
    const bool overlaps = ratio == kOverlap;
    PlaceWindow(layer);
    if (ratio == 0) continue;
    PlaceEntries(layer, ratio);
    PlacePending(layer, ratio, overlaps ? 2 * d : d);
    if (!overlaps) continue;
    PlaceKeys(layer, ratio);
    overlapping_[static_cast<size_t>(layer)] = {
        .overlap = TakeBytes(states_.overlap, ops::OverlapStateBytes(ratio, d)),
        .index_overlap = TakeBytes(states_.overlap, ops::OverlapStateBytes(ratio, index)),
        .index_pending = TakeBytes(states_.pending, PendingBytes(ratio, 2 * index, index))};
  }
}

Result<DeepseekV4Cache> DeepseekV4Cache::Plan(const DeepseekV4Config& config,
                                              const LoadOptions& options) {
  const TrunkRowFormats quantised = {ops::RowFormat::kFp8, ops::RowFormat::kFp8,
                                     ops::RowFormat::kFp4Key};
  ASSIGN_OR_RETURN(const TrunkRowFormats formats,
                   ChooseRowFormats(config, options.kv_dtype, quantised));
  return DeepseekV4Cache(config, options, formats);
}

ops::CompressorStates DeepseekV4Cache::Overlap(int layer, std::byte* base) const {
  return {base + place(layer).overlap, page_bytes(states_.overlap)};
}
ops::CompressorStates DeepseekV4Cache::IndexOverlap(int layer, std::byte* base) const {
  return {base + place(layer).index_overlap, page_bytes(states_.overlap)};
}
ops::CompressorStates DeepseekV4Cache::IndexPending(int layer, std::byte* base) const {
  return {base + place(layer).index_pending, page_bytes(states_.pending)};
}

}  // namespace hayate::models
