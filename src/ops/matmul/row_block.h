#pragma once
// One source block of one row (32 columns, or 256 of a k-quant), between the file's form and the
// packed one: codes widened to a byte, scales as the format stores them.

#include <cstddef>
#include <cstdint>

#include "ops/matmul/layout.h"

namespace hayate::ops::matmul {

inline constexpr int kMaxGroups = 16;  // scales of a super-block

struct RowBlock {
  uint8_t
      codes[kSuperBlock];  // nibble and table layouts: 0 … 15; byte layouts: with the offset added
  uint16_t d = 0;          // f16 bits; bf16 bits for Scales::kBf16
  uint16_t min = 0;        // f16 bits: the min, or a super-block's dmin
  uint8_t scales[kMaxGroups];  // per group, super-blocks only (signed for kSuperSigned)
  uint8_t mins[kMaxGroups];    // per group, Scales::kSuperMin only
};

// The layout whose codes a block dtype decodes to, in whatever layout a matrix is then packed.
Layout BlockLayoutOf(DType dtype);

// Reads one block as the GGUF specification of `dtype` lays it out.
void DecodeBlock(DType dtype, const std::byte* source, RowBlock* block);

// Puts a block into, or takes it from, row `row` of a tile at unit `unit` (a unit is one source
// block).
void StoreRowBlock(Layout layout, std::byte* tile, int64_t k, int row, int64_t unit,
                   const RowBlock& block);
void LoadRowBlock(Layout layout, const std::byte* tile, int64_t k, int row, int64_t unit,
                  RowBlock* block);

// Scale and min of group `group` of a block: a weight is scale · (code − offset) + min.
struct GroupScale {
  float scale;
  float min;
};
GroupScale ScaleOf(const LayoutInfo& info, const RowBlock& block, int group);

// The block's weights in fp32.
void DequantizeRowBlock(Layout layout, const RowBlock& block, float* out);

}  // namespace hayate::ops::matmul
