#include "ops/sparse_attention/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/detail/lanes.h"
#include "ops/sparse_attention/keys.h"
#include "ops/sparse_attention/sm90/sparse_attention.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

// Scores [keys] of one head to weights; returns 1 / denominator.
float Softmax(float* scores, int64_t num_keys, const float* sink) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < num_keys; ++i) most = std::max(most, scores[i]);
  float sum = 0.0f;
  for (int64_t i = 0; i < num_keys; ++i) sum += scores[i] = std::exp(scores[i] - most);
  if (sink != nullptr) sum += std::exp(*sink - most);
  return 1.0f / sum;
}

void AttendToken(const SparseAttentionArgs& args, const TokenKeys& keys, int64_t t, float* scores,
                 float* row) {
  const int64_t heads = args.q.shape[1], width = args.q.shape[2];
  const float* q = args.q.as<float>() + t * heads * width;
  float* out = args.out.as<float>() + t * heads * width;
  const int64_t count = keys.count();
  for (int64_t i = 0; i < count; ++i) {
    const float* k = keys.Load(i, row);
    for (int64_t h = 0; h < heads; ++h) {
      scores[h * count + i] = args.scale * detail::Dot(q + h * width, k, width);
    }
  }
  std::fill_n(out, heads * width, 0.0f);
  for (int64_t h = 0; h < heads; ++h) {
    float* weights = scores + h * count;
    const float inverse = Softmax(weights, count, args.sinks == nullptr ? nullptr : args.sinks + h);
    for (int64_t i = 0; i < count; ++i) weights[i] *= inverse;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* k = keys.Load(i, row);
    for (int64_t h = 0; h < heads; ++h) {
      detail::AddScaled(out + h * width, scores[h * count + i], k, width);
    }
  }
}

}  // namespace

void SparseAttention(Stream stream, Workspace& workspace, const SparseAttentionArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::SparseAttention(stream, workspace, args);
  }
  const int64_t heads = args.q.shape[1], width = args.q.shape[2];
  const size_t mark = workspace.mark();
  float* row = workspace.TakeArray<float>(width);
  const size_t rows_mark = workspace.mark();
  for (int32_t r = 0; r < args.window_rows.num_rows; ++r) {
    for (int32_t t = args.window_rows.q_begin[r]; t < args.window_rows.q_begin[r + 1]; ++t) {
      const TokenKeys keys(args, r, t);
      float* scores = workspace.TakeArray<float>(heads * keys.count());
      AttendToken(args, keys, t, scores, row);
      workspace.ResetTo(rows_mark);
    }
  }
  workspace.ResetTo(mark);
}

int64_t SparseAttentionWorkspaceBytes(int64_t max_keys, int64_t num_heads, int64_t width) {
  const int64_t bytes = (max_keys * num_heads + width) * static_cast<int64_t>(sizeof(float)) +
                        2 * static_cast<int64_t>(Workspace::kAlignment);
  if constexpr (kCudaBuild) return std::max(bytes, sm90::SparseAttentionWorkspaceBytes(width));
  return bytes;
}

}  // namespace hayate::ops
