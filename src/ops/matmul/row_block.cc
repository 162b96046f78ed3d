#include "ops/matmul/row_block.h"

#include <algorithm>
#include <cstring>

#include "tensor/float16.h"

namespace hayate::ops::matmul {
namespace {

// Byte of column `column` of a 32-column block, before the row's 4 · row is added.
constexpr int64_t GroupOffset(int group) { return int64_t{64} * group; }

void StoreHalf(std::byte* scales, int row, uint16_t bits) {
  std::memcpy(scales + 2 * row, &bits, sizeof(bits));
}
uint16_t LoadHalf(const std::byte* scales, int row) {
  uint16_t bits;
  std::memcpy(&bits, scales + 2 * row, sizeof(bits));
  return bits;
}

void StoreCodes(const LayoutInfo& info, std::byte* block, int row, const uint8_t* codes) {
  uint8_t* out = reinterpret_cast<uint8_t*>(block) + 4 * row;
  if (info.codes == Codes::kByte) {
    for (int g = 0; g < 8; ++g) std::memcpy(out + GroupOffset(g), codes + 4 * g, 4);
    return;
  }
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 4; ++i) {
      out[GroupOffset(g) + i] = static_cast<uint8_t>(codes[4 * g + i] | codes[4 * g + 16 + i] << 4);
    }
  }
}

void LoadCodes(const LayoutInfo& info, const std::byte* block, int row, uint8_t* codes) {
  const uint8_t* in = reinterpret_cast<const uint8_t*>(block) + 4 * row;
  if (info.codes == Codes::kByte) {
    for (int g = 0; g < 8; ++g) std::memcpy(codes + 4 * g, in + GroupOffset(g), 4);
    return;
  }
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 4; ++i) {
      codes[4 * g + i] = in[GroupOffset(g) + i] & 0xF;
      codes[4 * g + 16 + i] = in[GroupOffset(g) + i] >> 4;
    }
  }
}

}  // namespace

void StoreRowBlock(Layout layout, std::byte* tile, int64_t k, int row, int64_t unit,
                   const RowBlock& block) {
  const LayoutInfo info = InfoOf(layout);
  std::byte* scales = tile + unit * ScaleUnitBytes(info);
  StoreHalf(scales, row, block.d);
  const int groups = std::clamp(info.unit / info.group, 0, kMaxGroups);
  if (info.scales == Scales::kF16Min) StoreHalf(scales + 2 * kTileRows, row, block.min);
  if (info.scales == Scales::kSuperSigned) {
    std::byte* group_scales = scales + 2 * kTileRows;
    for (int g = 0; g < groups; ++g) group_scales[g * kTileRows + row] = std::byte{block.scales[g]};
  }
  if (info.scales == Scales::kSuperMin) {
    StoreHalf(scales + 2 * kTileRows, row, block.min);
    std::byte* group_scales = scales + 4 * kTileRows;
    for (int g = 0; g < groups; ++g) {
      group_scales[2 * g * kTileRows + row] = std::byte{block.scales[g]};
      group_scales[(2 * g + 1) * kTileRows + row] = std::byte{block.mins[g]};
    }
  }
  std::byte* codes =
      tile + CodesOffset(info, k) + unit * (info.unit / kBlock) * CodeBlockBytes(info);
  for (int b = 0; b < info.unit / kBlock; ++b) {
    StoreCodes(info, codes + b * CodeBlockBytes(info), row, block.codes + b * kBlock);
  }
}

void LoadRowBlock(Layout layout, const std::byte* tile, int64_t k, int row, int64_t unit,
                  RowBlock* block) {
  const LayoutInfo info = InfoOf(layout);
  const std::byte* scales = tile + unit * ScaleUnitBytes(info);
  block->d = LoadHalf(scales, row);
  const int groups = std::clamp(info.unit / info.group, 0, kMaxGroups);
  if (info.scales == Scales::kF16Min) block->min = LoadHalf(scales + 2 * kTileRows, row);
  if (info.scales == Scales::kSuperSigned) {
    const std::byte* group_scales = scales + 2 * kTileRows;
    for (int g = 0; g < groups; ++g) {
      block->scales[g] = static_cast<uint8_t>(group_scales[g * kTileRows + row]);
    }
  }
  if (info.scales == Scales::kSuperMin) {
    block->min = LoadHalf(scales + 2 * kTileRows, row);
    const std::byte* group_scales = scales + 4 * kTileRows;
    for (int g = 0; g < groups; ++g) {
      block->scales[g] = static_cast<uint8_t>(group_scales[2 * g * kTileRows + row]);
      block->mins[g] = static_cast<uint8_t>(group_scales[(2 * g + 1) * kTileRows + row]);
    }
  }
  const std::byte* codes =
      tile + CodesOffset(info, k) + unit * (info.unit / kBlock) * CodeBlockBytes(info);
  for (int b = 0; b < info.unit / kBlock; ++b) {
    LoadCodes(info, codes + b * CodeBlockBytes(info), row, block->codes + b * kBlock);
  }
}

GroupScale ScaleOf(const LayoutInfo& info, const RowBlock& block, int group) {
  switch (info.scales) {
    case Scales::kNone:
    case Scales::kF32:
      break;
    case Scales::kF16:
      return {F16ToFloat(block.d), 0.0f};
    case Scales::kF16Min:
      return {F16ToFloat(block.d), F16ToFloat(block.min)};
    case Scales::kBf16:
      return {Bf16ToFloat(block.d), 0.0f};
    case Scales::kSuperSigned:
      return {F16ToFloat(block.d) * static_cast<float>(static_cast<int8_t>(block.scales[group])),
              0.0f};
    case Scales::kSuperMin:
      return {F16ToFloat(block.d) * static_cast<float>(block.scales[group]),
              -(F16ToFloat(block.min) * static_cast<float>(block.mins[group]))};
  }
  return {0.0f, 0.0f};
}

void DequantizeRowBlock(Layout layout, const RowBlock& block, float* out) {
  const LayoutInfo info = InfoOf(layout);
  const uint8_t* table = info.codes == Codes::kTable ? TableOf(layout) : nullptr;
  for (int group = 0; group < info.unit / info.group; ++group) {
    const GroupScale scale = ScaleOf(info, block, group);
    for (int i = group * info.group; i < (group + 1) * info.group; ++i) {
      const int code = table != nullptr ? table[block.codes[i]] : block.codes[i];
      const float product = scale.scale * static_cast<float>(code - info.offset);
      // Without a min nothing is added: −0 stays −0.
      out[i] = scale.min == 0.0f ? product : product + scale.min;
    }
  }
}

}  // namespace hayate::ops::matmul
