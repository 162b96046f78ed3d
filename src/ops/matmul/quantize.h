#pragma once
// Activations to int8, 32 at a time: the definition that the vector paths reproduce bit by bit.

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul {

// Blocks whose greatest magnitude is below this become zero: 127 / max would overflow.
inline constexpr float kSmallestActivation = 1e-30f;

// Symmetric, scale = max |x| / 127, round to nearest even. A block with NaN or infinity gets the
// scale NaN, so that its rows come out as NaN rather than as plausible numbers.
BlockMeta QuantizeBlock(const float* x, int8_t* xq);

// The block data that belongs to a scale and the sums of the codes of columns 0 … 15 and 16 … 31.
inline BlockMeta MakeMeta(float scale, int32_t low_sum, int32_t high_sum) {
  const int32_t sum = low_sum + high_sum;
  return {.scale = scale,
          .scaled_sum = scale * static_cast<float>(sum),
          .scaled_sum_low = scale * static_cast<float>(low_sum),
          .scaled_sum_high = scale * static_cast<float>(high_sum),
          .neg8_sum = -8 * sum,
          .neg128_sum = -128 * sum,
          .neg128_sum_low = -128 * low_sum,
          .neg128_sum_high = -128 * high_sum};
}

}  // namespace hayate::ops::matmul
