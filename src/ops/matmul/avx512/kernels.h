#pragma once
// AVX-512 with VNNI and BF16 (Zen 4 and later, Cooper Lake, Sapphire Rapids and later).

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul::avx512 {

const Kernels& Avx512Kernels();

void RunFloat(Layout layout, const KernelArgs& args);
void RunInt8(Layout layout, const KernelArgs& args);
void Quantize(const float* x, int64_t t, int64_t k, int8_t* xq, BlockMeta* meta);
void ToBf16(const float* x, int64_t t, int64_t k, uint16_t* out);

}  // namespace hayate::ops::matmul::avx512
