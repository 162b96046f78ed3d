#include <cstring>

#include "base/check.h"
#include "ops/matmul/row_block.h"
#include "tensor/float16.h"

namespace hayate::ops::matmul {
namespace {

const uint8_t* Bytes(const std::byte* source) { return reinterpret_cast<const uint8_t*>(source); }

uint16_t Half(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// 16 bytes hold 32 nibbles: the low halves are columns 0 … 15.
void SplitNibbles(const uint8_t* source, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = source[i] & 0xF;
    codes[i + 16] = source[i] >> 4;
  }
}

// Adds bit 4 of the 5-bit formats: bit i of `high` belongs to column i.
void AddFifthBit(const uint8_t* high_bytes, uint8_t* codes) {
  uint32_t high;
  std::memcpy(&high, high_bytes, sizeof(high));
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (high >> i & 1) << 4);
}

// Q4_K and Q5_K: eight pairs of 6-bit scale and min in 12 bytes.
void UnpackScalesMins(const uint8_t* packed, RowBlock* block) {
  for (int j = 0; j < 4; ++j) {
    block->scales[j] = packed[j] & 63;
    block->mins[j] = packed[j + 4] & 63;
    block->scales[j + 4] = static_cast<uint8_t>((packed[j + 8] & 0xF) | packed[j] >> 6 << 4);
    block->mins[j + 4] = static_cast<uint8_t>(packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4);
  }
}

void DecodeQ2K(const uint8_t* source, RowBlock* block) {
  const uint8_t* codes = source + 16;
  for (int group = 0; group < 16; ++group) {
    block->scales[group] = source[group] & 0xF;
    block->mins[group] = source[group] >> 4;
    // A half of 128 columns takes 32 bytes; its quarter of 32 columns is one bit pair of each.
    const uint8_t* bytes = codes + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) block->codes[group * 16 + i] = bytes[i] >> shift & 3;
  }
  block->d = Half(source + 80);
  block->min = Half(source + 82);
}

void DecodeQ3K(const uint8_t* source, RowBlock* block) {
  const uint8_t* high = source;        // [32]: bit `quarter` of byte i
  const uint8_t* codes = source + 32;  // [64], as in Q2_K
  const uint8_t* packed = source + 96;
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? packed[group] & 0xF : packed[group - 8] >> 4;
    const int top = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
    block->scales[group] = static_cast<uint8_t>((low | top << 4) - 32);
    const int quarter = group / 2;
    const int first = group % 2 * 16;
    const uint8_t* bytes = codes + quarter / 4 * 32 + first;
    for (int i = 0; i < 16; ++i) {
      const int two_bits = bytes[i] >> (2 * (quarter % 4)) & 3;
      const int bias = (high[first + i] >> quarter & 1) != 0 ? 128 : 124;
      block->codes[group * 16 + i] = static_cast<uint8_t>(two_bits + bias);
    }
  }
  block->d = Half(source + 108);
}

// Q4_K and Q5_K; `high` is null for Q4_K.
void DecodeQ45K(const uint8_t* source, const uint8_t* high, const uint8_t* codes, RowBlock* block) {
  block->d = Half(source);
  block->min = Half(source + 2);
  UnpackScalesMins(source + 4, block);
  for (int chunk = 0; chunk < 4; ++chunk) {
    for (int i = 0; i < 32; ++i) {
      int low = codes[chunk * 32 + i] & 0xF;
      int up = codes[chunk * 32 + i] >> 4;
      if (high != nullptr) {
        low |= (high[i] >> (2 * chunk) & 1) << 4;
        up |= (high[i] >> (2 * chunk + 1) & 1) << 4;
      }
      block->codes[chunk * 64 + i] = static_cast<uint8_t>(low);
      block->codes[chunk * 64 + 32 + i] = static_cast<uint8_t>(up);
    }
  }
}

void DecodeQ6K(const uint8_t* source, RowBlock* block) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = source + half * 64;
    const uint8_t* high = source + 128 + half * 32;
    uint8_t* out = block->codes + half * 128;
    for (int i = 0; i < 32; ++i) {
      // 6-bit codes stand for −32 … 31; with the layout's offset of 128 that is code + 96.
      out[i] = static_cast<uint8_t>((low[i] & 0xF) + ((high[i] & 3) << 4) + 96);
      out[i + 32] = static_cast<uint8_t>((low[i + 32] & 0xF) + ((high[i] >> 2 & 3) << 4) + 96);
      out[i + 64] = static_cast<uint8_t>((low[i] >> 4) + ((high[i] >> 4 & 3) << 4) + 96);
      out[i + 96] = static_cast<uint8_t>((low[i + 32] >> 4) + ((high[i] >> 6) << 4) + 96);
    }
  }
  std::memcpy(block->scales, source + 192, 16);
  block->d = Half(source + 208);
}

}  // namespace

void DecodeBlock(DType dtype, const std::byte* source_bytes, RowBlock* block) {
  const uint8_t* source = Bytes(source_bytes);
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      block->d = Half(source);
      return SplitNibbles(source + 2, block->codes);
    case DType::kQ4_1:
      block->d = Half(source);
      block->min = Half(source + 2);
      return SplitNibbles(source + 4, block->codes);
    case DType::kMXFP4:
      // The table holds doubled values, so the scale is half of 2^(e − 127): exact in bf16.
      block->d = FloatToBf16(F8E8M0ToFloat(source[0]) * 0.5f);
      return SplitNibbles(source + 1, block->codes);
    case DType::kQ5_0:
      block->d = Half(source);
      SplitNibbles(source + 6, block->codes);
      AddFifthBit(source + 2, block->codes);
      for (int i = 0; i < 32; ++i) block->codes[i] = static_cast<uint8_t>(block->codes[i] + 112);
      return;
    case DType::kQ5_1:
      block->d = Half(source);
      block->min = Half(source + 2);
      SplitNibbles(source + 8, block->codes);
      return AddFifthBit(source + 4, block->codes);
    case DType::kQ8_0:
      block->d = Half(source);
      for (int i = 0; i < 32; ++i) block->codes[i] = source[2 + i] ^ 0x80;
      return;
    case DType::kQ2_K:
      return DecodeQ2K(source, block);
    case DType::kQ3_K:
      return DecodeQ3K(source, block);
    case DType::kQ4_K:
      return DecodeQ45K(source, nullptr, source + 16, block);
    case DType::kQ5_K:
      return DecodeQ45K(source, source + 16, source + 48, block);
    case DType::kQ6_K:
      return DecodeQ6K(source, block);
    default:
      CHECK(false) << "not a block type: " << Info(dtype).name;
  }
}

}  // namespace hayate::ops::matmul
