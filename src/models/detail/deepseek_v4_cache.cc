#include "models/detail/deepseek_v4_cache.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/align.h"
#include "base/error.h"

namespace hayate::models {
namespace {

constexpr int32_t kOverlap = DeepseekV4Config::kOverlapRatio;

// Ratios in use, ascending.
std::vector<int32_t> RatiosOf(const DeepseekV4Config& config) {
  std::vector<int32_t> ratios = config.ratios;
  std::erase(ratios, 0);
  std::ranges::sort(ratios);
  ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());
  return ratios;
}

}  // namespace

Result<DeepseekV4Cache> DeepseekV4Cache::Plan(const DeepseekV4Config& config,
                                              const LoadOptions& options) {
  DeepseekV4Cache cache;
  cache.head_dim_ = config.head_dim;
  cache.index_dim_ = config.index_dim;
  cache.rotary_dim_ = config.rotary_dim;
  switch (options.kv_dtype) {
    case DType::kF32:
      break;
    case DType::kF16:  // rows are bf16 in the model: a latent's range asks for its exponent
    case DType::kBF16:
      cache.row_format_ = cache.key_format_ = ops::RowFormat::kBF16;
      break;
    case DType::kF8E4M3:
      cache.packed_ = true;
      cache.row_format_ = ops::RowFormat::kFp8;
      cache.key_format_ = ops::RowFormat::kFp4Key;
      break;
    default:
      return Error(ErrorCode::kInvalidArgument,
                   "a latent cache of type {}; F32, BF16 and F8_E4M3 exist",
                   Info(options.kv_dtype).name);
  }
  if (!ops::HasRowFormat(cache.row_format_, config.head_dim, config.rotary_dim) ||
      !ops::HasRowFormat(cache.key_format_, config.index_dim, config.rotary_dim)) {
    return Error(ErrorCode::kInvalidArgument,
                 "a latent of {} features cannot be quantised in whole blocks; use a BF16 cache",
                 config.head_dim);
  }

  const std::vector<int32_t> ratios = RatiosOf(config);
  int32_t unit = 1;
  for (const int32_t ratio : ratios) unit = std::lcm(unit, ratio);
  cache.layout_.page_tokens = AlignUp(options.page_tokens, unit);
  auto& groups = cache.layout_.groups;
  groups.push_back({.name = "window", .kind = CacheKind::kWindow, .window = config.window});
  for (const int32_t ratio : ratios) {
    groups.push_back({.name = "compressed_" + std::to_string(ratio),
                      .kind = CacheKind::kCompressed,
                      .ratio = ratio});
  }
  if (std::ranges::count(ratios, kOverlap) > 0) {
    cache.overlap_group_ = static_cast<int>(groups.size());
    groups.push_back({.name = "overlap", .kind = CacheKind::kWindow, .window = 2 * kOverlap});
  }
  if (!ratios.empty()) {
    cache.pending_group_ = static_cast<int>(groups.size());
    groups.push_back({.name = "pending", .kind = CacheKind::kState});
  }
  cache.layers_.resize(static_cast<size_t>(config.num_layers));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    Place& place = cache.layers_[static_cast<size_t>(layer)];
    const auto found = std::ranges::find(ratios, config.ratio(layer));
    if (found != ratios.end()) place.entry_group = 1 + static_cast<int>(found - ratios.begin());
    cache.PlaceLayer(config, layer, place);
  }
  return cache;
}

int64_t DeepseekV4Cache::TakeBytes(int group, int64_t bytes) {
  return std::exchange(layout_.groups[static_cast<size_t>(group)].page_bytes,
                       page_bytes(group) + bytes);
}

void DeepseekV4Cache::PlaceLayer(const DeepseekV4Config& config, int layer, Place& place) {
  const int32_t ratio = config.ratio(layer), page = layout_.page_tokens;
  place.window = TakeBytes(0, ops::LatentPageBytes(Shape(row_format_, page, head_dim_, 0)));
  if (ratio == 0) return;
  const int32_t rows = page / ratio;
  const bool overlaps = ratio == kOverlap;
  const int32_t widening = overlaps ? 2 : 1;
  place.entries =
      TakeBytes(place.entry_group, ops::LatentPageBytes(Shape(row_format_, rows, head_dim_, 0)));
  place.pending =
      TakeBytes(pending_group_, ops::PendingStateBytes(ratio, widening * head_dim_, head_dim_));
  if (!overlaps) return;
  place.keys =
      TakeBytes(place.entry_group, ops::LatentPageBytes(Shape(key_format_, rows, index_dim_, 0)));
  place.index_pending =
      TakeBytes(pending_group_, ops::PendingStateBytes(ratio, 2 * index_dim_, index_dim_));
  place.overlap = TakeBytes(overlap_group_, ops::OverlapStateBytes(ratio, head_dim_));
  place.index_overlap = TakeBytes(overlap_group_, ops::OverlapStateBytes(ratio, index_dim_));
}

ops::LatentLayerView DeepseekV4Cache::Shape(ops::RowFormat format, int32_t page_rows, int32_t width,
                                            int group) const {
  return {.page_stride = page_bytes(group),
          .format = format,
          .page_rows = page_rows,
          .width = width,
          .rotary = rotary_dim_};
}

ops::LatentLayerView DeepseekV4Cache::WindowRows(int layer, std::byte* base) const {
  ops::LatentLayerView view = Shape(row_format_, layout_.page_tokens, head_dim_, 0);
  view.base = base + layers_[static_cast<size_t>(layer)].window;
  return view;
}

ops::LatentLayerView DeepseekV4Cache::Entries(int layer, std::byte* base) const {
  const int group = entry_group(layer);
  const int32_t ratio = layout_.groups[static_cast<size_t>(group)].ratio;
  ops::LatentLayerView view = Shape(row_format_, layout_.page_tokens / ratio, head_dim_, group);
  view.base = base + layers_[static_cast<size_t>(layer)].entries;
  return view;
}

ops::LatentLayerView DeepseekV4Cache::IndexKeys(int layer, std::byte* base) const {
  const int group = entry_group(layer);
  ops::LatentLayerView view = Shape(key_format_, layout_.page_tokens / kOverlap, index_dim_, group);
  view.base = base + layers_[static_cast<size_t>(layer)].keys;
  return view;
}

ops::CompressorStates DeepseekV4Cache::Overlap(int layer, std::byte* base) const {
  return {base + layers_[static_cast<size_t>(layer)].overlap, page_bytes(overlap_group_)};
}
ops::CompressorStates DeepseekV4Cache::IndexOverlap(int layer, std::byte* base) const {
  return {base + layers_[static_cast<size_t>(layer)].index_overlap, page_bytes(overlap_group_)};
}
ops::CompressorStates DeepseekV4Cache::Pending(int layer, std::byte* base) const {
  return {base + layers_[static_cast<size_t>(layer)].pending, page_bytes(pending_group_)};
}
ops::CompressorStates DeepseekV4Cache::IndexPending(int layer, std::byte* base) const {
  return {base + layers_[static_cast<size_t>(layer)].index_pending, page_bytes(pending_group_)};
}

}  // namespace hayate::models
