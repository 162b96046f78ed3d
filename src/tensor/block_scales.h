#pragma once
// Scales of a quantised matrix that lie in a tensor of their own: FP8 checkpoints have one for
// every 128 × 128 (or 32 × 32) weights, FP4 ones for every 32 columns of a row. A weight is its
// code times its scale.

#include <cstdint>
#include <cstring>

#include "tensor/float16.h"
#include "tensor/tensor_view.h"

namespace hayate {

struct BlockScales {
  ConstTensorView values;  // [⌈N / rows⌉, ⌈K / cols⌉], f32, bf16 or F8_E8M0; no data: no scales
  int32_t rows = 1;        // weights of the [N, K] matrix that share a scale
  int32_t cols = 1;

  bool empty() const { return values.data == nullptr; }

  // The scale of weight (row, col).
  float At(int64_t row, int64_t col) const {
    const int64_t index = row / rows * values.cols() + col / cols;
    switch (values.dtype) {
      case DType::kF8E8M0:
        return F8E8M0ToFloat(static_cast<uint8_t>(values.data[index]));
      case DType::kBF16: {
        uint16_t bits;
        std::memcpy(&bits, values.data + 2 * index, sizeof(bits));
        return Bf16ToFloat(bits);
      }
      default: {
        DCHECK(values.dtype == DType::kF32) << Info(values.dtype).name;
        float value;
        std::memcpy(&value, values.data + 4 * index, sizeof(value));
        return value;
      }
    }
  }
};

}  // namespace hayate
