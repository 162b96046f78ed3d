#pragma once
// The tensor-core product: out[T, N] = x[T, K] · Wᵀ (+ bias), W is [N, K], K contiguous in both.
// One kernel template, many tilings; which one runs is chosen on the host by ChooseGemm.

#include <cstdint>

#include "ops/matmul/sum_order.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace hayate::ops::sm90 {

enum class Scaling : uint8_t {
  kNone,    // bf16
  kBlock,   // fp8: weights per 128 × 128, x per row and 128 columns; the sum is kept in fp32
  kVector,  // fp8: weights per output feature, x per row
};

// Scales of x under kBlock lie [⌈K/128⌉, x_scale_stride]; the stride is a multiple of this.
inline constexpr int64_t kXScaleRows = 128;
// Columns that share a scale under kBlock.
inline constexpr int64_t kScaleColumns = 128;

struct GemmArgs {
  void* out = nullptr;  // [T, N]
  DType out_dtype = DType::kBF16;
  int64_t out_stride = 0;          // elements
  const void* x = nullptr;         // [T, K] bf16 or e4m3, contiguous rows of K elements
  const void* w = nullptr;         // [N, K] of the same type
  const float* bias = nullptr;     // [N] or null
  const float* x_scale = nullptr;  // kBlock [⌈K/128⌉, x_scale_stride]; kVector [T]
  const float* w_scale = nullptr;  // kBlock [⌈N/128⌉, ⌈K/128⌉]; kVector [N]
  int64_t x_scale_stride = 0;
  int64_t t = 0, n = 0, k = 0;
  Scaling scaling = Scaling::kNone;
  SumOrder order = SumOrder::kFastest;
  // Partial sums of tiles that several blocks share; GemmPartialBytes of them. Scratch.
  void* partials = nullptr;
  // kMaxBlocks counters: zero before the first launch, zero again after each. Launches that share
  // them are in one stream.
  uint32_t* flags = nullptr;
};

inline constexpr int64_t kMaxBlocks = 144;  // of a launch: multiprocessors of the device at most

// A tiling. Rows of the tensor cores' A operand are weights for few tokens, tokens for many.
struct GemmTiling {
  bool weights_first = true;
  int16_t tile_n = 128;  // output features
  int16_t tile_t = 64;   // tokens
  friend bool operator==(const GemmTiling&, const GemmTiling&) = default;
};

// Whether the tensor-core kernels can run the shape at all: 16-byte rows.
bool GemmSupports(Scaling scaling, int64_t k);
GemmTiling ChooseGemm(const GemmArgs& args, int num_multiprocessors);
// What `partials` must hold: the largest tile of every block.
int64_t GemmPartialBytes();

// Queues the product. No allocation, no synchronisation: may be captured.
void Gemm(Stream stream, const GemmArgs& args);
void GemmWithTiling(Stream stream, const GemmArgs& args, const GemmTiling& tiling);

}  // namespace hayate::ops::sm90
