#include <cmath>
#include <vector>

#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::ops {
namespace {

void Append(const LatentLayerView& cache, const AttentionRows& rows, int32_t r, int32_t index,
            std::vector<std::vector<float>>& keys) {
  keys.emplace_back(static_cast<size_t>(cache.width));
  const int32_t page = rows.PagesOf(r)[index / cache.page_rows];
  LoadLatentRow(cache, page, index % cache.page_rows, keys.back().data());
}

}  // namespace

void SparseAttentionReference(const SparseAttentionArgs& args) {
  const int64_t heads = args.q.shape[1], width = args.q.shape[2];
  for (int32_t r = 0; r < args.window_rows.num_rows; ++r) {
    for (int32_t t = args.window_rows.q_begin[r]; t < args.window_rows.q_begin[r + 1]; ++t) {
      std::vector<std::vector<float>> keys;
      const int32_t p = args.positions[t];
      for (int32_t s = 0; s <= p; ++s) {
        if (s <= p - args.window) continue;
        if (args.window_begin != nullptr && s < args.window_begin[r]) continue;
        Append(args.window_cache, args.window_rows, r, s, keys);
      }
      if (args.selected != nullptr) {
        for (int32_t i = 0; i < args.selected_count[t]; ++i) {
          Append(args.entry_cache, args.entry_rows, r, args.selected[t * args.selected_stride + i],
                 keys);
        }
      } else if (args.ratio > 0) {
        for (int32_t e = 0; e < (p + 1) / args.ratio; ++e) {
          Append(args.entry_cache, args.entry_rows, r, e, keys);
        }
      }
      for (int64_t h = 0; h < heads; ++h) {
        const float* q = args.q.as<float>() + (t * heads + h) * width;
        std::vector<double> score;
        double most = -INFINITY;
        for (const auto& key : keys) {
          double dot = 0.0;
          for (int64_t i = 0; i < width; ++i) dot += double{q[i]} * key[static_cast<size_t>(i)];
          score.push_back(dot * args.scale);
          most = std::max(most, score.back());
        }
        double sum = args.sinks == nullptr ? 0.0 : std::exp(args.sinks[h] - most);
        for (const double s : score) sum += std::exp(s - most);
        for (int64_t i = 0; i < width; ++i) {
          double value = 0.0;
          for (size_t k = 0; k < keys.size(); ++k) {
            value += std::exp(score[k] - most) / sum * keys[k][static_cast<size_t>(i)];
          }
          args.out.as<float>()[(t * heads + h) * width + i] = static_cast<float>(value);
        }
      }
    }
  }
}

}  // namespace hayate::ops
