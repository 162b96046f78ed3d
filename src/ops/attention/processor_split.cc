#include "ops/attention/processor_split.h"

#include <algorithm>

#include "base/align.h"

namespace hayate::ops {
namespace {

// Nanoseconds, fitted to what an H200 takes (sm90/README.md).

class DecodeTime {
 public:
  DecodeTime(const AttentionPlanShape& shape, int64_t pages)
      : bytes_(static_cast<double>(pages * 2 * kPlanPage * shape.head_dim) *
               (shape.cache == DType::kBF16 ? 2 : 1)) {}

  double On(int32_t processors) const {
    constexpr double kBytesPerNs = 3900, kProcessorBytesPerNs = 40;
    return bytes_ / std::min(kBytesPerNs, processors * kProcessorBytesPerNs);
  }

 private:
  double bytes_;
};

// Of one tile or more: alone, in pairs, or each in so many parts.
class PrefillTime {
 public:
  PrefillTime(const AttentionPlanShape& shape, std::span<const PrefillTile> tiles, bool pairs,
              int32_t parts) {
    constexpr double kTileNs = 3000;
    constexpr double kMeetNs = 2400;  // once of two blocks, twice of four
    // Of 128 keys of 128 features; with parts most multiprocessors ask the cache for keys.
    const double block_ns = parts > 1 ? 2000 : 1750;
    constexpr int32_t kBlockKeys = 128, kFeatures = 128;
    const double widening = shape.cache == DType::kBF16 ? 1.0 : 2.0;
    const double scale = widening * shape.head_dim / kFeatures;
    double sum_ns = 0;
    for (const PrefillTile& tile : tiles) {
      const int32_t end = tile.position + tile.num_tokens;
      const int32_t keys = shape.window > 0 ? std::min(end, shape.window + tile.num_tokens) : end;
      const double blocks = CeilDiv(CeilDiv(keys, kBlockKeys), parts);
      const double ns = kTileNs + parts / 2 * kMeetNs + blocks * block_ns * scale;
      longest_ns_ = std::max(longest_ns_, ns);
      sum_ns += ns;
    }
    const auto num_tiles = static_cast<int64_t>(tiles.size());
    mean_ns_ = sum_ns / static_cast<double>(num_tiles);
    const int32_t together = pairs && parts == 1 ? 2 : 1;  // tiles
    works_ = CeilDiv<int64_t>(num_tiles, together) * shape.num_kv_heads;
    width_ = together * parts;
  }

  // Processors that take a tile of a kv head, or a pair of them, together.
  int32_t width() const { return width_; }
  double On(int32_t processors) const {
    // A cluster lies on neighbouring multiprocessors: of four, 30 find room on 132.
    const int32_t places = std::max(1, width_ == 4 ? processors * 10 / 44 : processors / width_);
    const auto rounds = static_cast<double>(CeilDiv<int64_t>(works_, places));
    return std::max(longest_ns_, rounds * mean_ns_);
  }

 private:
  int32_t width_ = 1;
  int64_t works_ = 0;
  double longest_ns_ = 0, mean_ns_ = 0;
};

// The kernel has instances of parts for 128 features.
bool MayDivideTiles(const AttentionPlanShape& shape) {
  return shape.split == SplitRule::kBalanced && shape.head_dim == 128;
}

}  // namespace

ProcessorSplit SplitProcessors(const AttentionPlanShape& shape, int64_t decode_pages,
                               std::span<const PrefillTile> tiles, bool pairs) {
  // Tiles wait nearly twice as long for keys while decode keeps the memory busy.
  constexpr double kCrowded = 1.75;
  constexpr double kLaunchNs = 6500, kLeastGain = 0.98;
  if (tiles.empty()) return {};
  const int32_t all = shape.num_processors;
  const DecodeTime decode(shape, decode_pages);
  const PrefillTime whole(shape, tiles, pairs, 1);
  const double behind_ns = decode.On(all) + kLaunchNs;
  ProcessorSplit best;
  double best_ns = kLeastGain * (behind_ns + whole.On(all));
  const auto consider = [&](const ProcessorSplit& split, double ns) {
    if (ns >= best_ns) return;
    best = split;
    best_ns = ns;
  };
  for (const int32_t parts : {2, 4}) {
    if (!MayDivideTiles(shape)) break;
    consider({.parts = parts}, behind_ns + PrefillTime(shape, tiles, pairs, parts).On(all));
  }
  if (decode_pages == 0) return best;
  for (int32_t beside = whole.width(); beside < all; beside += whole.width()) {
    consider({.beside = beside}, std::max(decode.On(all - beside), kCrowded * whole.On(beside)));
  }
  return best;
}

}  // namespace hayate::ops
