#pragma once
// Heads whose last R features turn with the position, in interleaved pairs (2i, 2i + 1): queries on
// their way in, attention outputs on their way back.

#include <cstdint>

#include "ops/rope/rope.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

enum class Rotation : uint8_t { kForward, kInverse };

struct HeadRotationArgs {
  TensorView x;  // [T, heads, D], changed in place
  int32_t rotary = 0;
  const float* cos_sin = nullptr;  // [T, R]: cos then sin, R/2 each
  Rotation direction = Rotation::kForward;
  // x / √(mean(x²) + eps) per head before the rotation; 0: none.
  float rms_eps = 0.0f;
  bool hadamard = false;      // then the Hadamard transform of all D
  bool simulate_fp4 = false;  // then through E2M1 with a power-of-two scale per 32
};
void RotateHeads(Stream stream, const HeadRotationArgs& args);

// One vector of `rotary` features; `cos_sin` [rotary].
void RotatePairs(float* x, const float* cos_sin, int32_t rotary, Rotation direction);

// Rows of cos and sin of fp32(position · frequency), as the models' own code rounds the angle; at a
// million positions an angle in double differs from it by up to 0.03.
struct SinglePrecisionRopeArgs {
  TensorView out;                      // [count, R] f32: cos then sin
  const int32_t* positions = nullptr;  // [count]
  const float* inv_freq = nullptr;     // [R / 2]
};
void SinglePrecisionRopeRows(Stream stream, const SinglePrecisionRopeArgs& args);

}  // namespace hayate::ops
