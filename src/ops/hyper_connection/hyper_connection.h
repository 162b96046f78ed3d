#pragma once
// Manifold-constrained hyper-connections (DeepSeek V4): S = 4 residual streams whose mixing is
// computed from the streams themselves. Around every sublayer:
//
//   x         = the S streams of a token, joined                                     [S·H]
//   mix       = (fn · x) / √(mean(x²) + norm_eps)                                    [S·(S + 2)]
//   pre[j]    = sigmoid(scale[0]·mix[j] + base[j]) + eps
//   post[k]   = 2·sigmoid(scale[1]·mix[S + k] + base[S + k])
//   C[j, k]   = softmax over k of (scale[2]·mix + base)[2S + S·j + k], plus eps, made doubly
//               stochastic: columns, then `iterations` − 1 times rows and columns (Sinkhorn)
//   enter:      out = RmsNorm(Σ_j p[j]·stream[j]),  p = pre of this sublayer, or of an earlier one
//   leave:      stream[k] ← post[k]·y + Σ_j C[j, k]·stream[j]
//
// C is applied transposed: the sum runs over its first index. All in fp32; a token's result depends
// on that token alone.

#include <cstdint>

#include "ops/matmul/matmul.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"
#include "tensor/workspace.h"

namespace hayate::ops {

inline constexpr int kHyperStreams = 4;                                  // S
inline constexpr int kHyperMixes = kHyperStreams * (kHyperStreams + 2);  // outputs of fn
inline constexpr int kHyperPost = kHyperStreams;                         // pre comes first
inline constexpr int kHyperMatrix = 2 * kHyperStreams;                   // then post, then C

struct HyperConnection {
  const PackedMatrix* fn = nullptr;  // [S·(S + 2), S·H]
  const float* base = nullptr;       // [S·(S + 2)]
  const float* scale = nullptr;      // [3]
  float norm_eps = 1e-6f;
  float eps = 1e-6f;
  int32_t iterations = 20;
};

struct HyperEnterArgs {
  TensorView out;           // [T, H], the sublayer's input; f32 or, on CUDA, bf16
  TensorView coefficients;  // [T, S·(S + 2)]: pre, post, C row by row
  ConstTensorView streams;  // [T, S, H]
  HyperConnection weights;
  const float* norm = nullptr;  // [H], the sublayer's RMS norm
  // p of every token, `pre_stride` floats apart; null: this sublayer's own pre.
  const float* pre = nullptr;
  int64_t pre_stride = 0;
};
void HyperEnter(Stream stream, Workspace& workspace, const HyperEnterArgs& args);

struct HyperLeaveArgs {
  TensorView streams;            // [T, S, H] f32, changed in place
  ConstTensorView y;             // [T, H], the sublayer's output; f32 or, on CUDA, bf16
  ConstTensorView coefficients;  // [T, S·(S + 2)], of the sublayer's HyperEnter
};
void HyperLeave(Stream stream, const HyperLeaveArgs& args);

// The end of the trunk: out = RmsNorm(Σ_j p[j]·stream[j]).
struct HyperCollapseArgs {
  TensorView out;           // [T, H]
  ConstTensorView streams;  // [T, S, H]
  // V4: p[j] = sigmoid(scale[0]·mix[j] + base[j]) + eps with fn [S, S·H]. V4.1: `pre` is given.
  HyperConnection weights;
  const float* pre = nullptr;
  int64_t pre_stride = 0;
  const float* norm = nullptr;  // [H]; null: the sum is left as it is
  float norm_eps = 1e-6f;
};
void HyperCollapse(Stream stream, Workspace& workspace, const HyperCollapseArgs& args);

// The S equal streams that a token starts with: streams[t, j] = x[t].
void HyperExpand(Stream stream, TensorView streams, ConstTensorView x);
// streams[t, j] += x[t] in all of them: x [T, H] f32.
void HyperAdd(Stream stream, TensorView streams, ConstTensorView x);
// out[t] = the mean of a token's streams: out [T, H] f32, rows `row_stride` floats apart.
void HyperMeans(Stream stream, TensorView out, int64_t row_stride, ConstTensorView streams);
// p of the first of equal streams alone: (1, 0, …) in the first S of every row of coefficients
// [T, S·(S + 2)].
void HyperTakeFirst(Stream stream, TensorView coefficients);

// Upper bound of what one of these takes from the workspace, bytes.
int64_t HyperWorkspaceBytes(int64_t max_tokens, int64_t hidden_size);

// The definitions, with fn [S·(S + 2), S·H] as plain fp32.
void HyperCoefficientsReference(float* coefficients, const float* streams, const float* fn,
                                const HyperConnection& weights, int64_t hidden_size);
void HyperEnterReference(const HyperEnterArgs& args, const float* fn);
void HyperLeaveReference(const HyperLeaveArgs& args);

}  // namespace hayate::ops
