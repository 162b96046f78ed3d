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

class PrefillTime {
 public:
  PrefillTime(const AttentionPlanShape& shape, std::span<const PrefillTile> tiles, bool pairs)
      : width_(pairs ? 2 : 1),
        works_(static_cast<int64_t>(tiles.size()) / width_ * shape.num_kv_heads) {
    constexpr double kTileNs = 3000, kBlockNs = 1750;  // the latter of 128 keys of 128 features
    constexpr int32_t kBlockKeys = 128, kFeatures = 128;
    const double widening = shape.cache == DType::kBF16 ? 1.0 : 2.0;
    double sum_ns = 0;
    for (const PrefillTile& tile : tiles) {
      const int32_t end = tile.position + tile.num_tokens;
      const int32_t keys = shape.window > 0 ? std::min(end, shape.window + tile.num_tokens) : end;
      const double blocks = CeilDiv(keys, kBlockKeys);
      const double ns = kTileNs + blocks * kBlockNs * widening * shape.head_dim / kFeatures;
      longest_ns_ = std::max(longest_ns_, ns);
      sum_ns += ns;
    }
    mean_ns_ = sum_ns / static_cast<double>(std::max<size_t>(1, tiles.size()));
  }

  // Processors that take a tile of a kv head, or a pair of them, together.
  int32_t width() const { return width_; }
  double On(int32_t processors) const {
    const int32_t places = std::max(1, processors / width_);
    const auto rounds = static_cast<double>(CeilDiv<int64_t>(works_, places));
    return std::max(longest_ns_, rounds * mean_ns_);
  }

 private:
  int32_t width_;
  int64_t works_;
  double longest_ns_ = 0, mean_ns_ = 0;
};

}  // namespace

int32_t ProcessorsBeside(const AttentionPlanShape& shape, int64_t decode_pages,
                         std::span<const PrefillTile> tiles, bool pairs) {
  // Tiles wait twice as long for keys while decode keeps the memory busy.
  constexpr double kCrowded = 2.0;
  constexpr double kLaunchNs = 3000, kLeastGain = 0.98;
  if (decode_pages == 0 || tiles.empty()) return 0;
  const DecodeTime decode(shape, decode_pages);
  const PrefillTime prefill(shape, tiles, pairs);
  const int32_t all = shape.num_processors;
  int32_t best = 0;
  double best_ns = kLeastGain * (decode.On(all) + prefill.On(all) + kLaunchNs);
  for (int32_t beside = prefill.width(); beside < all; beside += prefill.width()) {
    const double ns = std::max(decode.On(all - beside), kCrowded * prefill.On(beside));
    if (ns >= best_ns) continue;
    best = beside;
    best_ns = ns;
  }
  return best;
}

}  // namespace hayate::ops
