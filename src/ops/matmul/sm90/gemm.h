#pragma once
// The tensor-core product: out[T, N] = x[T, K] · Wᵀ (+ bias), W is [N, K], K contiguous in both.
// One kernel template, many tilings; which one runs is chosen on the host by ChooseGemm.

#include <cstdint>

#include "base/align.h"
#include "ops/matmul/sum_order.h"
#include "ops/norm/deferred_norm.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace hayate::ops::sm90 {

enum class Scaling : uint8_t {
  kNone,    // bf16
  kBlock,   // fp8: weights per 128 × 128, x per row and 128 columns; the sum is kept in fp32
  kVector,  // fp8: weights per output feature, x per row
};

// Scales of x under kBlock lie [⌈K/128⌉, x_scale_stride]; the stride is a multiple of this.
inline constexpr int64_t kXScaleRows = 256;
// Columns that share a scale under kBlock.
inline constexpr int64_t kScaleColumns = 128;
// Floats between rows of w_scale under kBlock: the copy engine brings eight scales from any
// multiple of four on.
constexpr int64_t BlockScaleStride(int64_t n) {
  return AlignUp<int64_t>(CeilDiv<int64_t>(n, kScaleColumns), 4) + 4;
}

// Of the calling thread's device.
int NumMultiprocessors();

struct GemmArgs {
  void* out = nullptr;  // [T, N]
  DType out_dtype = DType::kBF16;
  int64_t out_stride = 0;          // elements
  const void* x = nullptr;         // [T, K] bf16 or e4m3, contiguous rows of K elements
  const void* w = nullptr;         // [N, K] of the same type
  const float* bias = nullptr;     // [N] or null
  const float* x_scale = nullptr;  // kBlock [⌈K/128⌉, x_scale_stride]; kVector [T]
  const float* w_scale = nullptr;  // kBlock [⌈K/128⌉, w_scale_stride]; kVector [N]
  int64_t x_scale_stride = 0;
  int64_t w_scale_stride = 0;  // BlockScaleStride(N)
  int64_t t = 0, n = 0, k = 0;
  Scaling scaling = Scaling::kNone;
  SumOrder order = SumOrder::kFastest;
  // Whether launches of the stream may still be writing w. Else the launch fetches weights while
  // the ones before it end.
  bool w_changes = false;

  // What the product does besides: bf16 only, but for `gated` in fitted tiles.
  bool gated = false;   // out [T, N/2] bf16 = silu(first half) · second half; where CanGate
  DeferredNorm x_norm;  // the division of x's rows; up to kMaxDeferredTokens
  // Up to kMaxDeferredTokens: residual += the product, out = residual · norm_weight in bf16, and
  // sums of residual².
  float* residual = nullptr;           // [T, N]
  const float* norm_weight = nullptr;  // [N]
  float* squares = nullptr;            // [T, SquareParts(tiling, N)]
};
inline constexpr int64_t kMaxDeferredTokens = 16;

enum class GemmShape : uint8_t {
  kNarrow,  // few tokens: what counts is that every multiprocessor streams weights
  kWide,    // many tokens: what counts is how often an operand is used once it is on chip
};

// Every tiling sums a row's products in order of K, but for these narrow ones that are not
// `in_order`: tiles of up to kMaxSplitTileN features and kMaxSplitTileT tokens sum even and odd
// blocks of K apart, bf16 tiles of up to kMaxSkinnyTokens tokens the four steps of blocks, tiles in
// two parts the halves of K.
inline constexpr int kMaxSplitTileN = 48, kMaxSplitTileT = 64;
inline constexpr int kMaxSkinnyTokens = 16;
struct GemmTiling {
  GemmShape shape = GemmShape::kNarrow;
  int16_t tile_n = 128;  // output features
  int16_t tile_t = 64;   // tokens
  int16_t cluster = 1;   // blocks that share an operand
  bool in_order = false;
  int16_t parts = 1;  // of K: 2, one a block of a pair, where a cluster shares nothing
  // The blocks of a cluster share the larger operand: the tokens, or else the weights.
  bool shares_tokens() const { return shape == GemmShape::kNarrow || tile_t > tile_n; }
  friend bool operator==(const GemmTiling&, const GemmTiling&) = default;
};

bool SumsInOrder(Scaling scaling, const GemmTiling& tiling);
bool CanGate(const GemmTiling& tiling);
// Sums of squares of a row that a launch with `squares` leaves.
int64_t SquareParts(const GemmTiling& tiling, int64_t n);
// Whether bf16 takes narrow tiles instead of cuBLASLt, as measured on an H200 (README.md).
bool OwnTilesWin(int64_t t);

// Whether the tensor-core kernels can run the shape at all: 16-byte rows.
bool GemmSupports(Scaling scaling, int64_t k);
GemmTiling ChooseGemm(const GemmArgs& args, int num_multiprocessors);
GemmTiling ChooseGemm(const GemmArgs& args);  // on the current device
// Estimated nanoseconds of a launch.
double EstimateGemmNs(const GemmArgs& args, const GemmTiling& tiling, int num_multiprocessors);
// Queues the product. No allocation, no synchronisation: may be captured.
void Gemm(Stream stream, const GemmArgs& args);
void GemmWithTiling(Stream stream, const GemmArgs& args, const GemmTiling& tiling);

}  // namespace hayate::ops::sm90
