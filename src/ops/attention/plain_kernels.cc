// The portable implementation: any CPU, no intrinsics.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/attention/kernels.h"
#include "ops/attention/kv_layout.h"
#include "tensor/float16.h"

namespace hayate::ops::attention {
namespace {

void Scores(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  float* s = tile.scores + query * kKeysPerBlock;
  std::fill_n(s, kKeysPerBlock, 0.0f);
  for (int32_t i = 0; i < tile.d; ++i) {
    const float q = tile.q[query * tile.d + i];
    for (int32_t j = block.begin; j < block.end; ++j) {
      const int32_t half = j / kKeysPerHalf;
      s[j] += q * LoadElement(block.dtype, block.k[half], i * block.k_stride + j % kKeysPerHalf);
    }
  }
  for (int32_t j = block.begin; j < block.end; ++j) {
    const float* scales = block.k_scales[j / kKeysPerHalf];
    if (scales != nullptr) s[j] *= scales[j % kKeysPerHalf];
    if (tile.soft_cap > 0.0f) s[j] = tile.soft_cap * std::tanh(s[j] / tile.soft_cap);
  }
}

// Scores to weights, times the value's scale; returns the correction of what came before.
float Softmax(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  float* s = tile.scores + query * kKeysPerBlock;
  const uint32_t visible = VisibleKeys(tile, query, block);
  const float max = tile.max[query];
  float new_max = max;
  for (int32_t j = 0; j < kKeysPerBlock; ++j) {
    if ((visible >> j & 1) != 0) new_max = std::max(new_max, s[j]);
  }
  const float correction = max == new_max ? 1.0f : std::exp(max - new_max);
  float sum = 0.0f;
  for (int32_t j = 0; j < kKeysPerBlock; ++j) {
    const float p = (visible >> j & 1) != 0 ? std::exp(s[j] - new_max) : 0.0f;
    sum += p;
    const float* scales = block.v_scales[j / kKeysPerHalf];
    s[j] = scales == nullptr || p == 0.0f ? p : p * scales[j % kKeysPerHalf];
  }
  tile.max[query] = new_max;
  tile.sum[query] = tile.sum[query] * correction + sum;
  return correction;
}

void AddBlock(const QueryTile& tile, const KeyBlock& block) {
  for (int32_t query = 0; query < tile.count; ++query) {
    Scores(tile, block, query);
    const float correction = Softmax(tile, block, query);
    float* o = tile.o + query * tile.d;
    for (int32_t i = 0; i < tile.d; ++i) o[i] *= correction;
    for (int32_t j = block.begin; j < block.end; ++j) {
      const float p = tile.scores[query * kKeysPerBlock + j];
      const int64_t row = int64_t{j % kKeysPerHalf} * tile.d;
      for (int32_t i = 0; i < tile.d; ++i) {
        o[i] += p * LoadElement(block.dtype, block.v[j / kKeysPerHalf], row + i);
      }
    }
  }
}

// max |x| / 127, round to nearest even. A row with NaN or infinity gets the scale NaN.
float StoreInt8(const float* x, int32_t d, int8_t* out, int64_t stride) {
  float max = 0.0f;
  bool finite = true;
  for (int32_t i = 0; i < d; ++i) {
    finite &= std::isfinite(x[i]);
    max = std::max(max, std::fabs(x[i]));
  }
  const float inverse = finite && max >= 1e-30f ? 127.0f / max : 0.0f;
  for (int32_t i = 0; i < d; ++i) {
    out[i * stride] = finite ? static_cast<int8_t>(std::nearbyint(x[i] * inverse)) : int8_t{0};
  }
  return finite ? max / 127.0f : std::numeric_limits<float>::quiet_NaN();
}

float Store(DType dtype, const float* x, int32_t d, std::byte* out, int64_t stride) {
  uint16_t* words = reinterpret_cast<uint16_t*>(out);
  switch (dtype) {
    case DType::kF32:
      for (int32_t i = 0; i < d; ++i) std::memcpy(out + i * stride * 4, x + i, 4);
      return 1.0f;
    case DType::kF16:
      for (int32_t i = 0; i < d; ++i) words[i * stride] = FloatToF16(x[i]);
      return 1.0f;
    case DType::kBF16:
      for (int32_t i = 0; i < d; ++i) words[i * stride] = FloatToBf16(x[i]);
      return 1.0f;
    case DType::kI8:
      return StoreInt8(x, d, reinterpret_cast<int8_t*>(out), stride);
    default:
      CHECK(false) << "not a cache type: " << Info(dtype).name;
  }
  return 1.0f;
}

}  // namespace

const Kernels& PlainKernels() {
  static constexpr Kernels kKernels = {.name = "plain", .add_block = AddBlock, .store = Store};
  return kKernels;
}

}  // namespace hayate::ops::attention
