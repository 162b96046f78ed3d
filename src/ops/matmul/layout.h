#pragma once
// How prepared weights lie in memory. Every layout cuts the rows into tiles of 16 that are
// interleaved, so that one 64-byte load feeds 16 output rows and no sum ever crosses lanes. A tile
// is contiguous:
//
//   | scales of every block, in order of k | pad to 64 bytes | codes of every block, in order of k
//   |
//
// Codes of a block of 32 columns. Group g holds columns 4g … 4g+3, what VPDPBUSD multiplies in one
// lane:
//   bytes    group g at 64·g + 4·row
//   nibbles  group g in the low and group g + 4 in the high half of the byte at 64·g + 4·row, g < 4
// Float layouts have no scales: [k][16] elements, or [k/2][16][2] for the bf16 dot. F8 codes are
// [k][16] bytes; a K that is no multiple of 32 ends in a block filled up with zeros.
//
// A weight is scale · (code − offset) + min; nothing is rounded while packing.

#include <cstddef>
#include <cstdint>

#include "base/align.h"
#include "tensor/dtype.h"

namespace hayate::ops::matmul {

inline constexpr int kTileRows = 16;
inline constexpr int kBlock = 32;        // columns that share an activation scale
inline constexpr int kSuperBlock = 256;  // columns of a k-quant's block
// Kernels prefetch and load past the last tile's scales; storage ends with this many unused bytes.
inline constexpr int64_t kReadAheadBytes = 64;

enum class Layout : int32_t {
  kF32,
  kF16,
  kBf16,
  kBf16Dot,       // pairs of columns, for VDPBF16PS; activations are rounded to bf16
  kF8,            // F8_E4M3 bytes [k][16] under fp32 scales per row and 32 columns
  kNibble,        // Q4_0
  kNibbleMin,     // Q4_1
  kNibbleIq4Nl,   // IQ4_NL: code through a table
  kNibbleMxfp4,   // MXFP4: code through a table, power-of-two scales kept as bf16
  kNibbleSuper,   // Q4_K
  kByte,          // Q8_0, Q5_0
  kByteMin,       // Q5_1
  kByteSuper,     // Q5_K
  kByteSigned16,  // Q6_K, Q3_K
  kByteSuper16,   // Q2_K
};
inline constexpr int kNumLayouts = static_cast<int>(Layout::kByteSuper16) + 1;

enum class Codes : uint8_t { kFloat, kF8, kNibble, kTable, kByte };

enum class Scales : uint8_t {
  kNone,
  kF16,          // per block: d[16]
  kF16Min,       // per block: d[16], min[16]
  kBf16,         // per block: d[16]
  kF32,          // per block: d[16]
  kSuperSigned,  // per super-block: d[16] f16, then per group: scale[16] i8
  kSuperMin,     // per super-block: d[16], dmin[16] f16, then per group: scale[16], min[16] u8;
                 // a weight is (d · scale) · code − dmin · min
};

struct LayoutInfo {
  Codes codes = Codes::kFloat;
  Scales scales = Scales::kNone;
  int group = kBlock;  // columns that share a scale
  int offset = 0;      // subtracted from the unsigned code (after the table)
  int unit = 1;        // columns that are packed together: a source block
};

constexpr LayoutInfo InfoOf(Layout layout) {
  switch (layout) {
    case Layout::kF32:
    case Layout::kF16:
    case Layout::kBf16:
    case Layout::kBf16Dot:
      return {};
    case Layout::kF8:
      return {Codes::kF8, Scales::kF32, kBlock, 0, kBlock};
    case Layout::kNibble:
      return {Codes::kNibble, Scales::kF16, kBlock, 8, kBlock};
    case Layout::kNibbleMin:
      return {Codes::kNibble, Scales::kF16Min, kBlock, 0, kBlock};
    case Layout::kNibbleIq4Nl:
      return {Codes::kTable, Scales::kF16, kBlock, 128, kBlock};
    case Layout::kNibbleMxfp4:
      return {Codes::kTable, Scales::kBf16, kBlock, 128, kBlock};
    case Layout::kNibbleSuper:
      return {Codes::kNibble, Scales::kSuperMin, kBlock, 0, kSuperBlock};
    case Layout::kByte:
      return {Codes::kByte, Scales::kF16, kBlock, 128, kBlock};
    case Layout::kByteMin:
      return {Codes::kByte, Scales::kF16Min, kBlock, 0, kBlock};
    case Layout::kByteSuper:
      return {Codes::kByte, Scales::kSuperMin, kBlock, 0, kSuperBlock};
    case Layout::kByteSigned16:
      return {Codes::kByte, Scales::kSuperSigned, 16, 128, kSuperBlock};
    case Layout::kByteSuper16:
      return {Codes::kByte, Scales::kSuperMin, 16, 0, kSuperBlock};
  }
  return {};
}

// Values of the 4-bit codes of table layouts, plus 128 so that they are unsigned.
inline constexpr uint8_t kIq4NlTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                            129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kMxfp4Table[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                            128, 127, 126, 125, 124, 122, 120, 116};

constexpr const uint8_t* TableOf(Layout layout) {
  return layout == Layout::kNibbleIq4Nl ? kIq4NlTable : kMxfp4Table;
}

// Bytes of the scales of one unit of one tile.
constexpr int64_t ScaleUnitBytes(const LayoutInfo& info) {
  switch (info.scales) {
    case Scales::kNone:
      return 0;
    case Scales::kF16:
    case Scales::kBf16:
      return 2 * kTileRows;
    case Scales::kF16Min:
    case Scales::kF32:
      return 4 * kTileRows;
    case Scales::kSuperSigned:
      return 2 * kTileRows + kSuperBlock / info.group * kTileRows;
    case Scales::kSuperMin:
      return 4 * kTileRows + kSuperBlock / info.group * 2 * kTileRows;
  }
  return 0;
}
// Bytes of the codes of one block of 32 columns of one tile.
constexpr int64_t CodeBlockBytes(const LayoutInfo& info) {
  const bool bytes = info.codes == Codes::kByte || info.codes == Codes::kF8;
  return bytes ? kTileRows * kBlock : kTileRows * kBlock / 2;
}
// From the start of a tile to its codes.
constexpr int64_t CodesOffset(const LayoutInfo& info, int64_t k) {
  return AlignUp<int64_t>(k / info.unit * ScaleUnitBytes(info), 64);
}

constexpr int64_t TileBytes(Layout layout, int64_t k) {
  switch (layout) {
    case Layout::kF32:
      return k * kTileRows * 4;
    case Layout::kF16:
    case Layout::kBf16:
      return AlignUp<int64_t>(k * kTileRows * 2, 64);
    case Layout::kBf16Dot:
      return AlignUp<int64_t>(k, 2) * kTileRows * 2;
    case Layout::kF8:
      return AlignUp<int64_t>(k, kBlock) * kTileRows * 9 / 8;
    default: {
      const LayoutInfo info = InfoOf(layout);
      return CodesOffset(info, k) + k / kBlock * CodeBlockBytes(info);
    }
  }
}

}  // namespace hayate::ops::matmul
