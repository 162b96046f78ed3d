#pragma once
// Activations to int8, 32 at a time: the definition that the vector paths reproduce bit by bit.

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul {

// Blocks whose greatest magnitude is below this become zero: 127 / max would overflow.
inline constexpr float kSmallestActivation = 1e-30f;

// Symmetric, scale = max |x| / 127, round to nearest even. A block with NaN or infinity gets the
// scale NaN, so that its rows come out as NaN rather than as plausible numbers.
BlockMeta QuantizeBlock(const float* x, int8_t* xq);

}  // namespace hayate::ops::matmul
