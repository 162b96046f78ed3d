#pragma once
// AVX-512: F, BW, DQ and VL (Skylake-X), with VNNI (Cascade Lake, Ice Lake), with VNNI and BF16
// (Zen 4, Cooper Lake, Sapphire Rapids and later). One table each.

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul::avx512 {

const Kernels& Avx512Kernels();
const Kernels& Avx512VnniKernels();
const Kernels& Avx512Bf16Kernels();

void RunFloat(Layout layout, const KernelArgs& args);  // kBf16Dot: where the CPU has BF16
void RunInt8(Layout layout, const KernelArgs& args);
void RunInt8Vnni(Layout layout, const KernelArgs& args);
void Quantize(const float* x, int64_t t, int64_t k, int8_t* xq, BlockMeta* meta);
void ToBf16(const float* x, int64_t t, int64_t k, uint16_t* out);  // where the CPU has BF16

}  // namespace hayate::ops::matmul::avx512
