#pragma once
// AVX2 with FMA and F16C (Haswell and Zen 1 and later).

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul::avx2 {

const Kernels& Avx2Kernels();

void RunInt8(Layout layout, const KernelArgs& args);

}  // namespace hayate::ops::matmul::avx2
