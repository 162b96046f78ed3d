#include "weights/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"

namespace hayate::weights {
namespace {

using Bytes = const uint8_t*;

uint16_t Load16(Bytes p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
float Half(Bytes p) { return F16ToFloat(Load16(p)); }
float Float(int code) { return static_cast<float>(code); }
int Low(uint8_t byte) { return byte & 0xF; }
int High(uint8_t byte) { return byte >> 4; }

// In every 32-element type the low nibbles are elements 0..15, the high ones 16..31.

// half d | 16 × u8
void Q4_0(Bytes b, float* out) {
  const float d = Half(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = Float(Low(b[2 + i]) - 8) * d;
    out[i + 16] = Float(High(b[2 + i]) - 8) * d;
  }
}

// half d | half m | 16 × u8
void Q4_1(Bytes b, float* out) {
  const float d = Half(b), m = Half(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = Float(Low(b[4 + i])) * d + m;
    out[i + 16] = Float(High(b[4 + i])) * d + m;
  }
}

// Five-bit codes: nibbles at `nibbles`, the fifth bit of element i in bit i of `high`.
void FiveBits(Bytes high, Bytes nibbles, int codes[32]) {
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? Low(nibbles[i]) : High(nibbles[i - 16]);
    codes[i] = nibble | (high[i / 8] >> (i % 8) & 1) << 4;
  }
}

// half d | u32 fifth bits | 16 × u8
void Q5_0(Bytes b, float* out) {
  int codes[32];
  FiveBits(b + 2, b + 6, codes);
  for (int i = 0; i < 32; ++i) out[i] = Float(codes[i] - 16) * Half(b);
}

// half d | half m | u32 fifth bits | 16 × u8
void Q5_1(Bytes b, float* out) {
  int codes[32];
  FiveBits(b + 4, b + 8, codes);
  for (int i = 0; i < 32; ++i) out[i] = Float(codes[i]) * Half(b) + Half(b + 2);
}

// half d | 32 × i8
void Q8_0(Bytes b, float* out) {
  for (int i = 0; i < 32; ++i) out[i] = Float(static_cast<int8_t>(b[2 + i])) * Half(b);
}

// half d | 16 × u8, nibbles are indices into a non-linear table
void IQ4_NL(Bytes b, float* out) {
  static constexpr int kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
  for (int i = 0; i < 16; ++i) {
    out[i] = Half(b) * Float(kValues[Low(b[2 + i])]);
    out[i + 16] = Half(b) * Float(kValues[High(b[2 + i])]);
  }
}

// e8m0 scale | 16 × u8, nibbles are E2M1: the table holds twice their values
void MXFP4(Bytes b, float* out) {
  static constexpr int kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float half_scale = F8E8M0ToFloat(b[0]) * 0.5f;
  for (int i = 0; i < 16; ++i) {
    out[i] = half_scale * Float(kTwice[Low(b[1 + i])]);
    out[i + 16] = half_scale * Float(kTwice[High(b[1 + i])]);
  }
}

// In the 256-element types, codes of two bits are stored 32 bytes at a time: byte l of half h holds
// the codes of elements 128h + l, +32, +64, +96, from its low bits up.
int TwoBits(Bytes codes, int i) { return codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }
// Nibbles likewise: byte l of quarter q holds elements 64q + l and +32.
int Nibble(Bytes codes, int i) { return codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0xF; }

// 16 × (4-bit scale | 4-bit min << 4), one per 16 elements | 64 × u8 | half d | half dmin
void Q2_K(Bytes b, float* out) {
  const float d = Half(b + 80), dmin = Half(b + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * Float(Low(b[i / 16])), min = dmin * Float(High(b[i / 16]));
    out[i] = scale * Float(TwoBits(b + 16, i)) - min;
  }
}

// 32 × u8 third bits (bit i / 32 of byte i % 32) | 64 × u8 | 12 bytes of 6-bit scales | half d
void Q3_K(Bytes b, float* out) {
  const Bytes scales = b + 96;
  const float d = Half(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int g =
        i / 16;  // scale g: nibble g % 8 of the first eight bytes, two bits of the last four
    const int nibble = g < 8 ? Low(scales[g]) : High(scales[g - 8]);
    const int scale = nibble | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
    const int code = TwoBits(b + 32, i) - ((b[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4);
    out[i] = d * Float(scale - 32) * Float(code);
  }
}

struct ScaleMin {
  int scale;
  int min;
};

// Eight pairs of 6-bit values in 12 bytes: pairs 0..3 whole in the low six bits of bytes 0..3
// and 4..7; pairs 4..7 as nibbles in bytes 8..11, their upper two bits on top of bytes 0..7.
ScaleMin SixBitPair(Bytes packed, int g) {
  if (g < 4) return {packed[g] & 63, packed[g + 4] & 63};
  return {Low(packed[g + 4]) | packed[g - 4] >> 6 << 4, High(packed[g + 4]) | packed[g] >> 6 << 4};
}

// half d | half dmin | 12 bytes of scale and min per 32 elements | 128 × u8
void Q4_K(Bytes b, float* out) {
  const float d = Half(b), dmin = Half(b + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin pair = SixBitPair(b + 4, i / 32);
    out[i] = d * Float(pair.scale) * Float(Nibble(b + 16, i)) - dmin * Float(pair.min);
  }
}

// half d | half dmin | 12 bytes of scale and min | 32 × u8 fifth bits | 128 × u8
void Q5_K(Bytes b, float* out) {
  const float d = Half(b), dmin = Half(b + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin pair = SixBitPair(b + 4, i / 32);
    const int code = Nibble(b + 48, i) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
    out[i] = d * Float(pair.scale) * Float(code) - dmin * Float(pair.min);
  }
}

// 128 × u8 low nibbles (64 bytes a half: elements l and l + 64) | 64 × u8 upper two bits |
// 16 × i8 scales, one per 16 elements | half d
void Q6_K(Bytes b, float* out) {
  const float d = Half(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int nibble = b[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0xF;
    const int code = (nibble | TwoBits(b + 128, i) << 4) - 32;
    out[i] = d * Float(static_cast<int8_t>(b[192 + i / 16])) * Float(code);
  }
}

template <typename T>
void Convert(const std::byte* row, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

template <typename T, typename ToFloat>
void Map(const std::byte* row, int64_t n, float* out, ToFloat to_float) {
  for (int64_t i = 0; i < n; ++i) {
    T bits;
    std::memcpy(&bits, row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = to_float(bits);
  }
}

using DequantizeBlock = void (*)(Bytes, float*);

DequantizeBlock BlockFunction(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return Q4_0;
    case DType::kQ4_1:
      return Q4_1;
    case DType::kQ5_0:
      return Q5_0;
    case DType::kQ5_1:
      return Q5_1;
    case DType::kQ8_0:
      return Q8_0;
    case DType::kIQ4_NL:
      return IQ4_NL;
    case DType::kMXFP4:
      return MXFP4;
    case DType::kQ2_K:
      return Q2_K;
    case DType::kQ3_K:
      return Q3_K;
    case DType::kQ4_K:
      return Q4_K;
    case DType::kQ5_K:
      return Q5_K;
    case DType::kQ6_K:
      return Q6_K;
    default:
      return nullptr;
  }
}

void ConvertPlainRow(DType dtype, const std::byte* row, int64_t n, float* out) {
  switch (dtype) {
    case DType::kF32:
      return Convert<float>(row, n, out);
    case DType::kF16:
      return Map<uint16_t>(row, n, out, F16ToFloat);
    case DType::kBF16:
      return Map<uint16_t>(row, n, out, Bf16ToFloat);
    case DType::kF8E4M3:
      return Map<uint8_t>(row, n, out, F8E4M3ToFloat);
    case DType::kF8E5M2:
      return Map<uint8_t>(row, n, out, F8E5M2ToFloat);
    case DType::kF8E8M0:
      return Map<uint8_t>(row, n, out, F8E8M0ToFloat);
    case DType::kI8:
      return Convert<int8_t>(row, n, out);
    case DType::kU8:
      return Convert<uint8_t>(row, n, out);
    case DType::kI16:
      return Convert<int16_t>(row, n, out);
    case DType::kI32:
      return Convert<int32_t>(row, n, out);
    case DType::kI64:
      return Convert<int64_t>(row, n, out);
    case DType::kBool:
      return Map<uint8_t>(row, n, out, [](uint8_t bits) { return bits != 0 ? 1.0f : 0.0f; });
    case DType::kF4E2M1:
      for (int64_t i = 0; i < n; ++i) {
        const uint8_t byte = static_cast<uint8_t>(row[i / 2]);
        out[i] = kF4E2M1Values[i % 2 == 0 ? byte & 0xF : byte >> 4];
      }
      return;
    default:
      CHECK(false) << "no conversion for " << Info(dtype).name;
  }
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* row, int64_t n, float* out) {
  const DequantizeBlock dequantize = BlockFunction(dtype);
  if (dequantize == nullptr) return ConvertPlainRow(dtype, row, n, out);
  const DTypeInfo& info = Info(dtype);
  CHECK_EQ(n % info.block_elements, 0) << info.name;
  const auto* block = reinterpret_cast<Bytes>(row);
  for (int64_t i = 0; i < n; i += info.block_elements, block += info.block_bytes) {
    dequantize(block, out + i);
  }
}

void Dequantize(const ConstTensorView& tensor, std::span<float> out) {
  CHECK_EQ(static_cast<int64_t>(out.size()), tensor.shape.num_elements());
  const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols());
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    DequantizeRow(tensor.dtype, tensor.data + row * row_bytes, tensor.cols(),
                  out.data() + row * tensor.cols());
  }
}

}  // namespace hayate::weights
