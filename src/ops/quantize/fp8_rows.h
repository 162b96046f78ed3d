#pragma once
// Activations as fp8 matrix products read them: e4m3 codes and fp32 scales. With `highest` the
// largest magnitude of a group (128 columns of a row, or the whole row), at least 1e-12:
//
//   scale = highest · (1 / 448),   code = e4m3(x · (448 / highest))
//
// all in fp32, rounded to nearest even. The operators that end in such rows (norms, SwiGLU)
// quantise their fp32 result, before any rounding to bf16.

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

enum class Fp8Scaling : uint8_t {
  kPerGroup,  // one scale for 128 columns; K is a multiple of 128
  kPerToken,
};
inline constexpr int64_t kFp8GroupColumns = 128;
inline constexpr float kFp8Highest = 448.0f;
inline constexpr float kFp8LeastHighest = 1e-12f;

struct Fp8Rows {
  uint8_t* codes = nullptr;  // [T, K]; null: not wanted
  // The scale of group g of row t is scales[t · row_stride + g · group_stride].
  float* scales = nullptr;
  Fp8Scaling scaling = Fp8Scaling::kPerGroup;
  int64_t row_stride = 1;
  int64_t group_stride = 0;

  bool wanted() const { return codes != nullptr; }
};

struct QuantizeRowsArgs {
  Fp8Rows out;        // [T, K]
  ConstTensorView x;  // [T, K] f32 or bf16
};
// CUDA only: CPU products quantise their own activations.
void QuantizeRows(Stream stream, const QuantizeRowsArgs& args);

// The definition, for one row of f32 in host memory.
void QuantizeRowReference(const float* x, int64_t columns, int64_t row, const Fp8Rows& out);

}  // namespace hayate::ops
