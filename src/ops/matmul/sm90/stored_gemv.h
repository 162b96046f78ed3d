#pragma once
// Products of a few tokens with weights in GGUF blocks, read as they are stored.

#include <cstdint>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace hayate::ops::sm90 {

inline constexpr int64_t kMaxGemvTokens = 16;

struct StoredGemvArgs {
  void* out = nullptr;  // [T, N]
  DType out_dtype = DType::kBF16;
  int64_t out_stride = 0;
  const void* x = nullptr;  // [T, K] bf16
  const void* w = nullptr;  // [N, K] in blocks of `type`
  DType type = DType::kQ4_0;
  const float* bias = nullptr;  // [N] or null
  int64_t t = 0, n = 0, k = 0;  // T at most kMaxGemvTokens
};
void StoredGemv(Stream stream, const StoredGemvArgs& args);

}  // namespace hayate::ops::sm90
