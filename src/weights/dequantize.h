#pragma once
// What stored weights mean: the plain fp32 definition of every dtype. Slow on purpose and never
// optimised; kernels and repacked layouts are tested against it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace hayate::weights {

// One row of `n` elements, n a multiple of the block size; `row` needs no alignment. Integers and
// booleans become their value. Products are rounded in the order (d × scale) × code − (dmin × min).
void DequantizeRow(DType dtype, const std::byte* row, int64_t n, float* out);

// The whole tensor, row-major: `out` has num_elements() floats.
void Dequantize(const ConstTensorView& tensor, std::span<float> out);

}  // namespace hayate::weights
