#pragma once
// Random stored weights of any dtype for tests and benches: random codes, finite scales.

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/float16.h"
#include "tensor/tensor_view.h"

namespace hayate::ops::matmul {

// Byte offsets of the f16 fields of a block (−1: none).
struct HalfFields {
  int d = -1, min = -1;
};
inline HalfFields HalfFieldsOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

class RandomWeights {
 public:
  RandomWeights(DType dtype, int64_t n, int64_t k, uint64_t seed, float scale = 0.01f)
      : dtype_(dtype), n_(n), k_(k), bytes_(static_cast<size_t>(n * RowBytes(dtype, k))) {
    Rng rng(seed);
    const DTypeInfo& info = Info(dtype);
    for (auto& byte : bytes_) byte = static_cast<std::byte>(rng.Below(256));
    for (size_t at = 0; at < bytes_.size(); at += static_cast<size_t>(info.block_bytes)) {
      FillBlock(&bytes_[at], scale, rng);
    }
  }

  ConstTensorView view() const { return {bytes_.data(), dtype_, {n_, k_}}; }
  const std::byte* row(int64_t index) const {
    return &bytes_[static_cast<size_t>(index * RowBytes(dtype_, k_))];
  }

 private:
  void FillBlock(std::byte* block, float scale, Rng& rng) const {
    if (dtype_ == DType::kF32) {
      const float value = rng.NextNormal() * scale;
      std::memcpy(block, &value, 4);
    } else if (dtype_ == DType::kF16 || dtype_ == DType::kBF16) {
      const float value = rng.NextNormal() * scale;
      const uint16_t bits = dtype_ == DType::kF16 ? FloatToF16(value) : FloatToBf16(value);
      std::memcpy(block, &bits, 2);
    } else if (dtype_ == DType::kF8E4M3) {
      *block = std::byte{FloatToF8E4M3(rng.NextNormal())};
    } else if (dtype_ == DType::kF8E5M2) {
      *block = static_cast<std::byte>(FloatToF16(rng.NextNormal() * scale) >> 8);
    } else if (dtype_ == DType::kMXFP4) {
      *block = static_cast<std::byte>(118 + rng.Below(4));
    }
    const HalfFields fields = HalfFieldsOf(dtype_);
    for (const int offset : {fields.d, fields.min}) {
      if (offset < 0) continue;
      const uint16_t bits = FloatToF16((rng.NextFloat() - 0.3f) * scale);
      std::memcpy(block + offset, &bits, 2);
    }
  }

  DType dtype_;
  int64_t n_, k_;
  std::vector<std::byte> bytes_;
};

}  // namespace hayate::ops::matmul
