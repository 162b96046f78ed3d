// The portable implementation: any CPU, no intrinsics. Correct and simple; the vector paths are
// what production runs on.

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/matmul/kernels.h"
#include "ops/matmul/quantize.h"
#include "ops/matmul/row_block.h"
#include "tensor/float16.h"

namespace hayate::ops::matmul {
namespace {

float FinishRow(float acc, const KernelArgs& args, int64_t row) {
  return args.bias == nullptr ? acc : acc + args.bias[row];
}

// Column `column` of row `lane` of a float tile.
template <Layout kLayout>
float FloatWeight(const std::byte* tile, int64_t column, int lane) {
  if constexpr (kLayout == Layout::kF32) {
    return reinterpret_cast<const float*>(tile)[column * kTileRows + lane];
  } else {
    const uint16_t* words = reinterpret_cast<const uint16_t*>(tile);
    if constexpr (kLayout == Layout::kF16) return F16ToFloat(words[column * kTileRows + lane]);
    if constexpr (kLayout == Layout::kBf16) return Bf16ToFloat(words[column * kTileRows + lane]);
    return Bf16ToFloat(words[column / 2 * 2 * kTileRows + 2 * lane + column % 2]);
  }
}

template <Layout kLayout>
void RunFloat(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  const int64_t bf16_stride = AlignUp<int64_t>(args.k, 2);
  for (int64_t t = 0; t < args.t; ++t) {
    for (int64_t row = 0; row < args.n; ++row) {
      const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
      const int lane = static_cast<int>(row % kTileRows);
      float acc = 0.0f;
      for (int64_t column = 0; column < args.k; ++column) {
        const float x = kLayout == Layout::kBf16Dot
                            ? Bf16ToFloat(args.x_bf16[t * bf16_stride + column])
                            : args.x[t * args.k + column];
        acc += FloatWeight<kLayout>(tile, column, lane) * x;
      }
      args.out[t * args.out_stride + row] = FinishRow(acc, args, row);
    }
  }
}

// Adds one unit (a source block) of a row to `acc` for one token.
float AddUnit(Layout layout, const RowBlock& block, const int8_t* xq, const BlockMeta* meta,
              float acc) {
  const LayoutInfo info = InfoOf(layout);
  const uint8_t* table = info.codes == Codes::kTable ? TableOf(layout) : nullptr;
  const bool has_min = info.scales == Scales::kF16Min || info.scales == Scales::kSuperMin;
  for (int group = 0; group < info.unit / info.group; ++group) {
    const GroupScale scale = ScaleOf(info, block, group);
    int dot = 0;
    for (int i = group * info.group; i < (group + 1) * info.group; ++i) {
      const int code = table != nullptr ? table[block.codes[i]] : block.codes[i];
      dot += (code - info.offset) * xq[i];
    }
    const BlockMeta& m = meta[group * info.group / kBlock];
    acc += scale.scale * m.scale * static_cast<float>(dot);
    if (!has_min) continue;
    const float half_sum = group % 2 == 0 ? m.scaled_sum_low : m.scaled_sum_high;
    acc += scale.min * (info.group == kBlock ? m.scaled_sum : half_sum);
  }
  return acc;
}

void RunInt8(Layout layout, const KernelArgs& args) {
  const LayoutInfo info = InfoOf(layout);
  const int64_t tile_bytes = TileBytes(layout, args.k);
  const int64_t blocks = args.k / kBlock;
  for (int64_t row = 0; row < args.n; ++row) {
    const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
    for (int64_t t = 0; t < args.t; ++t) args.out[t * args.out_stride + row] = 0.0f;
    for (int64_t unit = 0; unit < args.k / info.unit; ++unit) {
      RowBlock block;
      LoadRowBlock(layout, tile, args.k, static_cast<int>(row % kTileRows), unit, &block);
      for (int64_t t = 0; t < args.t; ++t) {
        float& acc = args.out[t * args.out_stride + row];
        acc = AddUnit(layout, block, args.xq + t * args.k + unit * info.unit,
                      args.meta + t * blocks + unit * info.unit / kBlock, acc);
      }
    }
    for (int64_t t = 0; t < args.t; ++t) {
      float& acc = args.out[t * args.out_stride + row];
      acc = FinishRow(acc, args, row);
    }
  }
}

void Quantize(const float* x, int64_t t, int64_t k, int8_t* xq, BlockMeta* meta) {
  for (int64_t block = 0; block < t * k / kBlock; ++block) {
    meta[block] = QuantizeBlock(x + block * kBlock, xq + block * kBlock);
  }
}

void ToBf16(const float* x, int64_t t, int64_t k, uint16_t* out) {
  const int64_t stride = AlignUp<int64_t>(k, 2);
  for (int64_t row = 0; row < t; ++row) {
    for (int64_t i = 0; i < k; ++i) out[row * stride + i] = FloatToBf16(x[row * k + i]);
    if (stride != k) out[row * stride + k] = 0;
  }
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

void Run(Layout layout, const KernelArgs& args) {
  switch (layout) {
    case Layout::kF32:
      return RunFloat<Layout::kF32>(args);
    case Layout::kF16:
      return RunFloat<Layout::kF16>(args);
    case Layout::kBf16:
      return RunFloat<Layout::kBf16>(args);
    case Layout::kBf16Dot:
      return RunFloat<Layout::kBf16Dot>(args);
    default:
      return RunInt8(layout, args);
  }
}

}  // namespace

BlockMeta QuantizeBlock(const float* x, int8_t* xq) {
  uint32_t top = 0;  // bits of max |x|: NaN and infinity are above every finite number
  for (int i = 0; i < kBlock; ++i) top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  const float max = std::bit_cast<float>(top);
  const bool finite = top < 0x7F800000u;
  const float inverse = finite && max >= kSmallestActivation ? 127.0f / max : 0.0f;
  int sum[2] = {0, 0};
  for (int i = 0; i < kBlock; ++i) {
    const int code = finite ? static_cast<int>(std::nearbyint(x[i] * inverse)) : 0;
    xq[i] = static_cast<int8_t>(code);
    sum[i / 16] += code;
  }
  const float scale = !finite           ? std::bit_cast<float>(0x7FC00000u)
                      : inverse == 0.0f ? 0.0f
                                        : max / 127.0f;
  return MakeMeta(scale, sum[0], sum[1]);
}

const Kernels& PlainKernels() {
  static constexpr Kernels kKernels = {
      .name = "plain",
      .runs_on = RunsAnywhere,
      .bf16_dot = false,
      .quantize = Quantize,
      .to_bf16 = ToBf16,
      .run = Run,
  };
  return kKernels;
}

}  // namespace hayate::ops::matmul
