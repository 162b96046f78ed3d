#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/kv_layout.h"

namespace hayate::ops {
namespace {

// One token and query head against positions [first, position].
void AttendOne(const PagedAttentionArgs& args, int32_t row, int64_t token, int32_t head,
               int32_t position) {
  const KvLayerView& cache = args.cache;
  const int32_t d = cache.head_dim;
  const int32_t num_heads = static_cast<int32_t>(args.out.shape[1]);
  const int32_t kv_head = (head + args.group_offset) / args.group_size;
  const int32_t first = args.window > 0 ? std::max(0, position - args.window + 1) : 0;
  const int32_t* pages = args.rows.PagesOf(row);
  const float* q = args.q.as<float>() + token * args.q_row_stride + int64_t{head} * d;
  float* out = args.out.as<float>() + (token * num_heads + head) * d;

  std::vector<float> scores;
  float max = args.sinks != nullptr ? args.sinks[head] : -INFINITY;
  for (int32_t s = first; s <= position; ++s) {
    const auto page = attention::HeadOfPage(cache, pages[s / cache.page_tokens], kv_head);
    const int32_t slot = s % cache.page_tokens;
    float dot = 0.0f;
    for (int32_t i = 0; i < d; ++i) {
      dot +=
          q[i] * attention::LoadElement(cache.dtype, page.k, int64_t{i} * cache.page_tokens + slot);
    }
    if (page.k_scales != nullptr) dot *= page.k_scales[slot];
    float score = dot * args.scale;
    if (args.soft_cap > 0.0f) score = args.soft_cap * std::tanh(score / args.soft_cap);
    scores.push_back(score);
    max = std::max(max, score);
  }
  float sum = args.sinks != nullptr ? std::exp(args.sinks[head] - max) : 0.0f;
  for (float& score : scores) {
    score = std::exp(score - max);
    sum += score;
  }
  std::fill_n(out, d, 0.0f);
  for (int32_t s = first; s <= position; ++s) {
    const auto page = attention::HeadOfPage(cache, pages[s / cache.page_tokens], kv_head);
    const int32_t slot = s % cache.page_tokens;
    const float value_scale = page.v_scales != nullptr ? page.v_scales[slot] : 1.0f;
    const float weight = scores[static_cast<size_t>(s - first)] / sum * value_scale;
    for (int32_t i = 0; i < d; ++i) {
      out[i] += weight * attention::LoadElement(cache.dtype, page.v, int64_t{slot} * d + i);
    }
  }
}

}  // namespace

void PagedAttentionReference(const PagedAttentionArgs& args) {
  const int32_t num_heads = static_cast<int32_t>(args.out.shape[1]);
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    const int32_t begin = args.rows.q_begin[r];
    const int32_t count = args.rows.q_begin[r + 1] - begin;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t position = args.rows.kv_len[r] - count + i;
      for (int32_t h = 0; h < num_heads; ++h) AttendOne(args, r, begin + i, h, position);
    }
  }
}

}  // namespace hayate::ops
