#pragma once
// Weights from their stored form to bf16 or f32, on the device: at load, and in tiles ahead of a
// product of many tokens.

#include <cstddef>
#include <cstdint>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace hayate::ops::sm90 {

// Scales of fp8 codes, f32 on the device: block (r, c) of rows × cols codes has values[r · stride +
// c]. No values: no scales.
struct CodeScales {
  const float* values = nullptr;
  int64_t stride = 0;
  int64_t rows = 1, cols = 1;
  int64_t first_row = 0;  // of the codes at hand, in the scales' count
};

struct ConvertArgs {
  void* out = nullptr;         // [rows, k]
  DType to = DType::kBF16;     // or kF32
  const void* from = nullptr;  // [rows, k] of `type`, rows without gaps
  DType type = DType::kBF16;
  int64_t rows = 0, k = 0;
  CodeScales scales;
};
// Queues the conversion. CHECKs that the type is one of SupportsConversion.
void ConvertWeights(Stream stream, const ConvertArgs& args);
bool SupportsConversion(DType type);

// Packed e2m1 codes [rows, k/2] under e8m0 scales [rows, k/32]; k a multiple of 32.
struct ConvertMxfp4Args {
  void* out = nullptr;      // [rows, k]
  DType to = DType::kBF16;  // or kF32
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  int64_t rows = 0, k = 0;
};
void ConvertMxfp4(Stream stream, const ConvertMxfp4Args& args);

// Weights [rows, k] f32, f16, bf16 → e4m3 codes and the scale of each row: largest / 448.
struct QuantizeWeightsArgs {
  uint8_t* codes = nullptr;  // [rows, k]
  float* scales = nullptr;   // [rows]
  const void* from = nullptr;
  DType type = DType::kBF16;
  int64_t rows = 0, k = 0;
};
void QuantizeWeights(Stream stream, const QuantizeWeightsArgs& args);

}  // namespace hayate::ops::sm90
