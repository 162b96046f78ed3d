#pragma once
// The implementations of Matmul and how one is chosen. Every implementation covers every layout of
// layout.h, so any of them can read any prepared matrix.
//
// Arithmetic of one output, the same in every kernel of an implementation whatever T is. Over the
// scale groups in order of k, with `dot` the exact integer Σ (code − offset) · xq of the group:
//   acc ← acc + (scale · xscale) · dot          one rounding for the product of scales, one FMA
//   acc ← acc + min · (xscale · Σ xq)           layouts with a min only
// then out = acc, or acc + bias.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/matmul/layout.h"
#include "ops/matmul/matmul.h"
#include "tensor/cpu_features.h"

namespace hayate::ops::matmul {

// What a kernel needs of one block of 32 quantised activations, so that offsets and mins cost one
// broadcast: x ≈ scale · xq, xq in −127 … 127.
struct BlockMeta {
  float scale;              // max |x| / 127; NaN where a value is not finite
  float scaled_sum;         // scale · Σ xq
  float scaled_sum_low;     // the same of columns 0 … 15
  float scaled_sum_high;    // and of columns 16 … 31
  int32_t neg8_sum;         // −8 · Σ xq
  int32_t neg128_sum;       // −128 · Σ xq
  int32_t neg128_sum_low;   // columns 0 … 15
  int32_t neg128_sum_high;  // columns 16 … 31
};
static_assert(sizeof(BlockMeta) == 32);

struct KernelArgs {
  const std::byte* tiles;  // first tile of the part
  int64_t n;               // rows of the part; the last tile may be short
  int64_t k;
  int64_t t;
  const float* x;          // [T, K]                float layouts
  const uint16_t* x_bf16;  // [T, ⌈K/2⌉ · 2]         kBf16Dot; the odd column is 0
  const int8_t* xq;        // [T, K]                int8 layouts
  const BlockMeta* meta;   // [T, K/32]
  float* out;              // [T, n] with `out_stride` floats between rows
  int64_t out_stride;
  const float* bias;  // [n] or null
};

struct Kernels {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);
  bool bf16_dot;  // BF16 weights are packed as kBf16Dot in fast mode
  // x [T, K] → xq [T, K] and meta [T, K/32]; K a multiple of 32.
  void (*quantize)(const float* x, int64_t t, int64_t k, int8_t* xq, BlockMeta* meta);
  void (*to_bf16)(const float* x, int64_t t, int64_t k, uint16_t* out);
  void (*run)(Layout layout, const KernelArgs& args);
};

const Kernels& PlainKernels();
// Best first; the last runs anywhere.
std::span<const Kernels* const> AllKernels();
// What a CPU can run, best first; never empty.
std::vector<const Kernels*> AvailableKernels(const CpuFeatures& features);

// PackMatrix and Matmul with a given implementation: what the public functions call, and tests.
Result<PackedMatrix> PackMatrixFor(const Kernels& kernels, Device& device,
                                   std::span<const MatrixPiece> pieces, MatmulPrecision precision);
void MatmulWith(const Kernels& kernels, Workspace& workspace, const MatmulArgs& args);

}  // namespace hayate::ops::matmul
