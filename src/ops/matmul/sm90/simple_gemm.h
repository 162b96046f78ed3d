#pragma once
// Products without tensor cores: the exact mode, and shapes whose rows the copy engine cannot read.

#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

struct SimpleGemmArgs {
  void* out = nullptr;  // [T, N]
  DType out_dtype = DType::kF32;
  int64_t out_stride = 0;
  const void* x = nullptr;  // [T, K]
  DType x_dtype = DType::kF32;
  const void* w = nullptr;  // [N, K]
  DType w_dtype = DType::kF32;
  const float* bias = nullptr;
  int64_t t = 0, n = 0, k = 0;
};
// fp32 products summed in order of k; f32 and bf16 operands in any mix.
void SimpleGemm(Stream stream, const SimpleGemmArgs& args);

}  // namespace hayate::ops::sm90
