#include "ops/quantize/fp8_rows.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/quantize/sm90/fp8_rows.h"
#include "tensor/cuda_build.h"
#include "tensor/float16.h"

namespace hayate::ops {

void QuantizeRows(Stream stream, const QuantizeRowsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::QuantizeRows(stream, args);
  }
  CHECK(false) << "fp8 activations on the CPU";
}

void QuantizeRowReference(const float* x, int64_t columns, int64_t row, const Fp8Rows& out) {
  const int64_t group = out.scaling == Fp8Scaling::kPerGroup ? kFp8GroupColumns : columns;
  for (int64_t begin = 0; begin < columns; begin += group) {
    float highest = kFp8LeastHighest;
    for (int64_t i = begin; i < begin + group; ++i) highest = std::max(highest, std::abs(x[i]));
    const float inverse = kFp8Highest / highest;
    out.scales[row * out.row_stride + begin / group * out.group_stride] =
        highest * (1.0f / kFp8Highest);
    for (int64_t i = begin; i < begin + group; ++i) {
      out.codes[row * columns + i] = FloatToF8E4M3(x[i] * inverse);
    }
  }
}

}  // namespace hayate::ops
