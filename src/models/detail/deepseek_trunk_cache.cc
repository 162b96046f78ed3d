#include "models/detail/deepseek_trunk_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/align.h"
#include "base/error.h"

namespace hayate::models {

Result<TrunkRowFormats> ChooseRowFormats(const DeepseekTrunkConfig& config, DType kv_dtype,
                                         const TrunkRowFormats& quantised) {
  TrunkRowFormats formats;
  switch (kv_dtype) {
    case DType::kF32:
      break;
    case DType::kF16:  // rows are bf16 in the model: a latent's range asks for its exponent
    case DType::kBF16:
      formats = {ops::RowFormat::kBF16, ops::RowFormat::kBF16, ops::RowFormat::kBF16};
      break;
    case DType::kF8E4M3:
      formats = quantised;
      break;
    default:
      return Error(ErrorCode::kInvalidArgument,
                   "a latent cache of type {}; F32, BF16 and F8_E4M3 exist", Info(kv_dtype).name);
  }
  if (!ops::HasRowFormat(formats.window, config.head_dim, config.rotary_dim) ||
      !ops::HasRowFormat(formats.keys, config.index_dim, config.rotary_dim)) {
    return Error(ErrorCode::kInvalidArgument,
                 "a latent of {} features cannot be quantised in whole blocks; use a BF16 cache",
                 config.head_dim);
  }
  return formats;
}

DeepseekTrunkCache::DeepseekTrunkCache(const DeepseekTrunkConfig& config,
                                       const LoadOptions& options, const TrunkRowFormats& formats,
                                       const std::string& entries)
    : formats_(formats),
      ratios_(config.ratios),
      places_(config.ratios.size()),
      head_dim_(config.head_dim),
      index_dim_(config.index_dim),
      rotary_dim_(config.rotary_dim) {
  states_.max_drafts = options.max_drafts;
  std::erase(ratios_, 0);
  std::ranges::sort(ratios_);
  ratios_.erase(std::unique(ratios_.begin(), ratios_.end()), ratios_.end());
  int32_t unit = 1;
  for (const int32_t ratio : ratios_) unit = std::lcm(unit, ratio);
  layout_.page_tokens = AlignUp(options.page_tokens, unit);
  AddGroup({.name = "window", .kind = CacheKind::kWindow, .window = config.window});
  for (const int32_t ratio : ratios_) {
    AddGroup({.name = entries + "_" + std::to_string(ratio),
              .kind = ratio == 1 ? CacheKind::kFull : CacheKind::kCompressed,
              .ratio = ratio});
  }
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const auto found = std::ranges::find(ratios_, config.ratio(layer));
    if (found != ratios_.end()) {
      place(layer).entry_group = 1 + static_cast<int>(found - ratios_.begin());
    }
  }
}

int32_t DeepseekTrunkCache::max_drafts() const {
  return states_.pending < 0 ? std::numeric_limits<int32_t>::max() : states_.max_drafts;
}

int DeepseekTrunkCache::AddGroup(CacheGroup group) {
  layout_.groups.push_back(std::move(group));
  return static_cast<int>(layout_.groups.size()) - 1;
}

void DeepseekTrunkCache::AddPendingGroup() {
  states_.pending = AddGroup({.name = "pending", .kind = CacheKind::kState});
}

void DeepseekTrunkCache::ReplayWindows(int32_t num_tokens) {
  layout_.groups[static_cast<size_t>(window_group())].replayed = true;
  layout_.replay_tokens = num_tokens;
}

int64_t DeepseekTrunkCache::TakeBytes(int group, int64_t bytes) {
  return std::exchange(layout_.groups[static_cast<size_t>(group)].page_bytes,
                       page_bytes(group) + bytes);
}

void DeepseekTrunkCache::PlaceWindow(int layer) {
  const auto shape = View(formats_.window, layout_.page_tokens, head_dim_, 0, nullptr);
  place(layer).window = TakeBytes(0, ops::LatentPageBytes(shape));
}

void DeepseekTrunkCache::PlaceEntries(int layer, int32_t ratio) {
  const int group = entry_group(layer);
  const auto shape = View(formats_.entries, layout_.page_tokens / ratio, head_dim_, group, nullptr);
  place(layer).entries = TakeBytes(group, ops::LatentPageBytes(shape));
}

void DeepseekTrunkCache::PlaceKeys(int layer, int32_t ratio) {
  const int group = entry_group(layer);
  const auto shape = View(formats_.keys, layout_.page_tokens / ratio, index_dim_, group, nullptr);
  place(layer).keys = TakeBytes(group, ops::LatentPageBytes(shape));
}

int64_t DeepseekTrunkCache::PendingBytes(int32_t ratio, int32_t width, int32_t head_dim) const {
  return ops::PendingStateBytes(ratio, width, head_dim, states_.max_drafts);
}

void DeepseekTrunkCache::PlacePending(int layer, int32_t ratio, int32_t width) {
  place(layer).pending = TakeBytes(states_.pending, PendingBytes(ratio, width, head_dim_));
}

ops::LatentLayerView DeepseekTrunkCache::View(ops::RowFormat format, int32_t page_rows,
                                              int32_t width, int group, std::byte* base) const {
  return {.base = base,
          .page_stride = page_bytes(group),
          .format = format,
          .page_rows = page_rows,
          .width = width,
          .rotary = rotary_dim_};
}

int32_t DeepseekTrunkCache::PageRows(int layer) const {
  return layout_.page_tokens / layout_.groups[static_cast<size_t>(entry_group(layer))].ratio;
}

ops::LatentLayerView DeepseekTrunkCache::WindowRows(int layer, std::byte* base) const {
  return View(formats_.window, layout_.page_tokens, head_dim_, 0, base + place(layer).window);
}

ops::LatentLayerView DeepseekTrunkCache::Entries(int layer, std::byte* base) const {
  return View(formats_.entries, PageRows(layer), head_dim_, entry_group(layer),
              base + place(layer).entries);
}

ops::LatentLayerView DeepseekTrunkCache::IndexKeys(int layer, std::byte* base) const {
  return View(formats_.keys, PageRows(layer), index_dim_, entry_group(layer),
              base + place(layer).keys);
}

ops::CompressorStates DeepseekTrunkCache::Pending(int layer, std::byte* base) const {
  return {base + place(layer).pending, page_bytes(states_.pending)};
}

}  // namespace hayate::models
