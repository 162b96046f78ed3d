#include "models/detail/deepseek_v41_cache.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/align.h"
#include "base/error.h"

namespace hayate::models {

Status DeepseekV41Cache::ChooseFormats(const DeepseekV41Config& config, DType kv_dtype) {
  switch (kv_dtype) {
    case DType::kF32:
      break;
    case DType::kF16:  // rows are bf16 in the model: a latent's range asks for its exponent
    case DType::kBF16:
      window_format_ = entry_format_ = key_format_ = ops::RowFormat::kBF16;
      break;
    case DType::kF8E4M3:
      packed_ = true;
      window_format_ = ops::RowFormat::kFp8All;
      entry_format_ = ops::RowFormat::kFp4All;
      key_format_ = ops::RowFormat::kFp4Key;
      break;
    default:
      return Error(ErrorCode::kInvalidArgument,
                   "a latent cache of type {}; F32, BF16 and F8_E4M3 exist", Info(kv_dtype).name);
  }
  if (!ops::HasRowFormat(window_format_, config.head_dim, config.rotary_dim) ||
      !ops::HasRowFormat(key_format_, config.index_dim, config.rotary_dim)) {
    return Error(ErrorCode::kInvalidArgument,
                 "a latent of {} features cannot be quantised in whole blocks; use a BF16 cache",
                 config.head_dim);
  }
  return OkStatus();
}

Result<DeepseekV41Cache> DeepseekV41Cache::Plan(const DeepseekV41Config& config,
                                                const LoadOptions& options) {
  DeepseekV41Cache cache;
  cache.head_dim_ = config.head_dim;
  cache.index_dim_ = config.index_dim;
  cache.rotary_dim_ = config.rotary_dim;
  RETURN_IF_ERROR(cache.ChooseFormats(config, options.kv_dtype));
  std::vector<int32_t> ratios;
  int32_t unit = 1;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int32_t ratio = config.ratio(layer);
    if (ratio == 0) continue;
    unit = std::lcm(unit, ratio);
    if (std::ranges::count(ratios, ratio) == 0) ratios.push_back(ratio);
  }
  cache.layout_.page_tokens = AlignUp(options.page_tokens, unit);
  cache.AddGroups(config, ratios);
  cache.layers_.resize(static_cast<size_t>(config.num_layers));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    Place& place = cache.layers_[static_cast<size_t>(layer)];
    const auto found = std::ranges::find(ratios, config.ratio(layer));
    if (found != ratios.end()) place.entry_group = 1 + static_cast<int>(found - ratios.begin());
    cache.PlaceLayer(config, layer, place);
  }
  return cache;
}

void DeepseekV41Cache::AddGroups(const DeepseekV41Config& config,
                                 const std::vector<int32_t>& ratios) {
  auto& groups = layout_.groups;
  groups.push_back({.name = "window", .kind = CacheKind::kWindow, .window = config.window});
  bool any_pending = false;
  for (const int32_t ratio : ratios) {
    groups.push_back({.name = "entries_" + std::to_string(ratio),
                      .kind = ratio == 1 ? CacheKind::kFull : CacheKind::kCompressed,
                      .ratio = ratio});
    any_pending |= ratio > 1;
  }
  if (any_pending) {
    pending_group_ = static_cast<int>(groups.size());
    groups.push_back({.name = "pending", .kind = CacheKind::kState});
  }
  if (!config.engrams.empty()) {
    engram_group_ = static_cast<int>(groups.size());
    groups.push_back({.name = "engram_tokens",
                      .kind = CacheKind::kWindow,
                      .window = config.engrams[0].ngram,
                      .page_bytes = layout_.page_tokens * static_cast<int64_t>(sizeof(int32_t))});
  }
}

int64_t DeepseekV41Cache::TakeBytes(int group, int64_t bytes) {
  return std::exchange(layout_.groups[static_cast<size_t>(group)].page_bytes,
                       page_bytes(group) + bytes);
}

int32_t DeepseekV41Cache::PageRows(int group) const {
  return layout_.page_tokens / layout_.groups[static_cast<size_t>(group)].ratio;
}

void DeepseekV41Cache::PlaceLayer(const DeepseekV41Config& config, int layer, Place& place) {
  place.window =
      TakeBytes(0, ops::LatentPageBytes(Shape(window_format_, layout_.page_tokens, head_dim_, 0)));
  if (!config.makes_entries(layer)) return;
  const int group = place.entry_group;
  place.entries = TakeBytes(
      group, ops::LatentPageBytes(Shape(entry_format_, PageRows(group), head_dim_, group)));
  place.keys = TakeBytes(
      group, ops::LatentPageBytes(Shape(key_format_, PageRows(group), index_dim_, group)));
  if (config.ratio(layer) == 1) return;
  place.pending =
      TakeBytes(pending_group_, ops::PendingStateBytes(config.ratio(layer), head_dim_, head_dim_));
}

ops::LatentLayerView DeepseekV41Cache::Shape(ops::RowFormat format, int32_t page_rows,
                                             int32_t width, int group) const {
  return {.page_stride = page_bytes(group),
          .format = format,
          .page_rows = page_rows,
          .width = width,
          .rotary = rotary_dim_};
}

ops::LatentLayerView DeepseekV41Cache::WindowRows(int layer, std::byte* base) const {
  ops::LatentLayerView view = Shape(window_format_, layout_.page_tokens, head_dim_, 0);
  view.base = base + layers_[static_cast<size_t>(layer)].window;
  return view;
}

ops::LatentLayerView DeepseekV41Cache::Entries(int source, std::byte* base) const {
  const int group = entry_group(source);
  ops::LatentLayerView view = Shape(entry_format_, PageRows(group), head_dim_, group);
  view.base = base + layers_[static_cast<size_t>(source)].entries;
  return view;
}

ops::LatentLayerView DeepseekV41Cache::IndexKeys(int source, std::byte* base) const {
  const int group = entry_group(source);
  ops::LatentLayerView view = Shape(key_format_, PageRows(group), index_dim_, group);
  view.base = base + layers_[static_cast<size_t>(source)].keys;
  return view;
}

ops::CompressorStates DeepseekV41Cache::Pending(int source, std::byte* base) const {
  return {base + layers_[static_cast<size_t>(source)].pending, page_bytes(pending_group_)};
}

}  // namespace hayate::models
