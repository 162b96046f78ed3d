#include "ops/sparse_attention/latent_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/lanes.h"
#include "ops/sparse_attention/head_rotation.h"
#include "ops/sparse_attention/quantize.h"
#include "ops/sparse_attention/sm90/row_write.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

constexpr int kFp8Block = 64;  // of kFp8
constexpr int kFp8AllBlock = 32;
constexpr int kFp4AllBlock = 16;
constexpr int kFp4KeyBlock = 32;
constexpr int kFp8RowBlock = 128;   // of kFp8Row and kFp8Key
constexpr int64_t kScaleAlign = 8;  // of kFp8

// Features that share a scale and how many of them there are.
struct Blocks {
  int size = 1;
  int count = 0;
};

Blocks BlocksOf(RowFormat format, int32_t width, int32_t rotary) {
  switch (format) {
    case RowFormat::kF32:
    case RowFormat::kBF16:
      return {};
    case RowFormat::kFp8:
      return {kFp8Block, (width - rotary) / kFp8Block};
    case RowFormat::kFp8All:
      return {kFp8AllBlock, width / kFp8AllBlock};
    case RowFormat::kFp4All:
      return {kFp4AllBlock, width / kFp4AllBlock};
    case RowFormat::kFp4Key:
      return {kFp4KeyBlock, width / kFp4KeyBlock};
    case RowFormat::kFp8Row:
      return {kFp8RowBlock, (width - rotary) / kFp8RowBlock};
    case RowFormat::kFp8Key:
      return {kFp8RowBlock, width / kFp8RowBlock};
  }
  return {};
}

struct RowBytesAt {
  std::byte* data;
  uint8_t* scales;
};

RowBytesAt At(const LatentLayerView& view, int32_t page, int32_t row) {
  const int64_t data_bytes = RowDataBytes(view.format, view.width, view.rotary);
  std::byte* base = view.base + page * view.page_stride;
  std::byte* scales = base + view.page_rows * data_bytes +
                      row * RowScaleBytes(view.format, view.width, view.rotary);
  return {base + row * data_bytes, reinterpret_cast<uint8_t*>(scales)};
}

void StoreBf16(std::byte* to, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = FloatToBf16(x[i]);
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

void LoadBf16(const std::byte* from, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    out[i] = Bf16ToFloat(bits);
  }
}

// E4M3 codes of `count` blocks and their scales as f32.
void LoadFp8Blocks(const uint8_t* codes, const std::byte* scales, int count, float* out) {
  for (int b = 0; b < count; ++b) {
    float scale;
    std::memcpy(&scale, scales + b * sizeof(scale), sizeof(scale));
    for (int i = b * kFp8RowBlock; i < (b + 1) * kFp8RowBlock; ++i) {
      out[i] = F8E4M3ToFloat(codes[i]) * scale;
    }
  }
}

// Rounds a block to bf16 as the models do before they quantise.
const float* Rounded(const float* x, int n, float* scratch) {
  for (int i = 0; i < n; ++i) scratch[i] = latent::RoundToBf16(x[i]);
  return scratch;
}

void StoreFp8Block(uint8_t* codes, uint8_t* scale, const float* x, int n) {
  float rounded[kFp8Block];
  const float* block = Rounded(x, n, rounded);
  *scale = latent::Fp8Scale(block, n);
  const float factor = F8E8M0ToFloat(*scale);
  for (int i = 0; i < n; ++i) codes[i] = FloatToF8E4M3(block[i] / factor);
}

void StoreFp8Blocks(uint8_t* codes, std::byte* scales, const float* x, int count) {
  for (int b = 0; b < count; ++b) {
    float rounded[kFp8RowBlock];
    const float* block = Rounded(x + b * kFp8RowBlock, kFp8RowBlock, rounded);
    const float scale = F8E8M0ToFloat(latent::Fp8Scale(block, kFp8RowBlock));
    std::memcpy(scales + b * sizeof(scale), &scale, sizeof(scale));
    for (int i = 0; i < kFp8RowBlock; ++i) {
      codes[b * kFp8RowBlock + i] = FloatToF8E4M3(block[i] / scale);
    }
  }
}

void StoreFp4Block(uint8_t* codes, uint8_t* scale, const float* x, int n, RowFormat format) {
  float rounded[kFp8Block];
  const float* block = Rounded(x, n, rounded);
  const bool e4m3 = format == RowFormat::kFp4All;
  *scale = e4m3 ? latent::Fp4ScaleE4M3(block, n) : latent::Fp4Scale(block, n);
  const float factor = e4m3 ? F8E4M3ToFloat(*scale) : F8E8M0ToFloat(*scale);
  for (int i = 0; i < n; i += 2) {
    const int low = latent::EncodeE2M1(block[i] / factor);
    const int high = latent::EncodeE2M1(block[i + 1] / factor);
    codes[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
}

}  // namespace

bool HasRowFormat(RowFormat format, int32_t width, int32_t rotary) {
  if (format == RowFormat::kF32 || format == RowFormat::kBF16) return true;
  const Blocks blocks = BlocksOf(format, width, rotary);
  const bool tail = format == RowFormat::kFp8 || format == RowFormat::kFp8Row;
  const int32_t quantised = tail ? width - rotary : width;
  return quantised > 0 && blocks.size * blocks.count == quantised;
}

int64_t RowDataBytes(RowFormat format, int32_t width, int32_t rotary) {
  switch (format) {
    case RowFormat::kF32:
      return 4 * int64_t{width};
    case RowFormat::kBF16:
      return 2 * int64_t{width};
    case RowFormat::kFp8:
      return width - rotary + 2 * int64_t{rotary};
    case RowFormat::kFp8Row: {
      const int64_t scales = BlocksOf(format, width, rotary).count * int64_t{sizeof(float)};
      return width - rotary + scales + 2 * int64_t{rotary};
    }
    case RowFormat::kFp8All:
    case RowFormat::kFp8Key:
      return width;
    case RowFormat::kFp4All:
    case RowFormat::kFp4Key:
      return width / 2;
  }
  return 0;
}

int64_t RowScaleBytes(RowFormat format, int32_t width, int32_t rotary) {
  const int64_t count = BlocksOf(format, width, rotary).count;
  if (format == RowFormat::kFp8Row) return 0;  // inside the row
  if (format == RowFormat::kFp8Key) return count * int64_t{sizeof(float)};
  return format == RowFormat::kFp8 ? AlignUp(count, kScaleAlign) : count;
}

int64_t LatentPageBytes(const LatentLayerView& shape) {
  const int64_t row = RowDataBytes(shape.format, shape.width, shape.rotary) +
                      RowScaleBytes(shape.format, shape.width, shape.rotary);
  return AlignUp<int64_t>(shape.page_rows * row, 8);
}

void StoreLatentRow(const LatentLayerView& view, int32_t page, int32_t row, const float* x) {
  const auto [data, scales] = At(view, page, row);
  auto* codes = reinterpret_cast<uint8_t*>(data);
  const Blocks blocks = BlocksOf(view.format, view.width, view.rotary);
  switch (view.format) {
    case RowFormat::kF32:
      std::memcpy(data, x, sizeof(float) * static_cast<size_t>(view.width));
      return;
    case RowFormat::kBF16:
      StoreBf16(data, x, view.width);
      return;
    case RowFormat::kFp8:
      StoreBf16(data + view.width - view.rotary, x + view.width - view.rotary, view.rotary);
      std::memset(scales, 0, static_cast<size_t>(AlignUp<int64_t>(blocks.count, kScaleAlign)));
      [[fallthrough]];
    case RowFormat::kFp8All:
      for (int b = 0; b < blocks.count; ++b) {
        StoreFp8Block(codes + b * blocks.size, scales + b, x + b * blocks.size, blocks.size);
      }
      return;
    case RowFormat::kFp8Row: {
      const int64_t tail = blocks.count * int64_t{kFp8RowBlock + sizeof(float)};
      StoreFp8Blocks(codes, data + blocks.count * kFp8RowBlock, x, blocks.count);
      StoreBf16(data + tail, x + view.width - view.rotary, view.rotary);
      return;
    }
    case RowFormat::kFp8Key:
      StoreFp8Blocks(codes, reinterpret_cast<std::byte*>(scales), x, blocks.count);
      return;
    case RowFormat::kFp4All:
    case RowFormat::kFp4Key:
      for (int b = 0; b < blocks.count; ++b) {
        StoreFp4Block(codes + b * blocks.size / 2, scales + b, x + b * blocks.size, blocks.size,
                      view.format);
      }
      return;
  }
}

void LoadLatentRow(const LatentLayerView& view, int32_t page, int32_t row, float* out) {
  const auto [data, scales] = At(view, page, row);
  const auto* codes = reinterpret_cast<const uint8_t*>(data);
  const Blocks blocks = BlocksOf(view.format, view.width, view.rotary);
  switch (view.format) {
    case RowFormat::kF32:
      std::memcpy(out, data, sizeof(float) * static_cast<size_t>(view.width));
      return;
    case RowFormat::kBF16:
      LoadBf16(data, view.width, out);
      return;
    case RowFormat::kFp8:
      LoadBf16(data + view.width - view.rotary, view.rotary, out + view.width - view.rotary);
      [[fallthrough]];
    case RowFormat::kFp8All:
      for (int i = 0; i < blocks.count * blocks.size; ++i) {
        out[i] = F8E4M3ToFloat(codes[i]) * F8E8M0ToFloat(scales[i / blocks.size]);
      }
      return;
    case RowFormat::kFp8Row: {
      const int64_t tail = blocks.count * int64_t{kFp8RowBlock + sizeof(float)};
      LoadFp8Blocks(codes, data + blocks.count * kFp8RowBlock, blocks.count, out);
      LoadBf16(data + tail, view.rotary, out + view.width - view.rotary);
      return;
    }
    case RowFormat::kFp8Key:
      LoadFp8Blocks(codes, reinterpret_cast<const std::byte*>(scales), blocks.count, out);
      return;
    case RowFormat::kFp4All:
    case RowFormat::kFp4Key:
      for (int i = 0; i < view.width; ++i) {
        const uint8_t scale = scales[i / blocks.size];
        const float factor =
            view.format == RowFormat::kFp4All ? F8E4M3ToFloat(scale) : F8E8M0ToFloat(scale);
        out[i] = kF4E2M1Values[codes[i / 2] >> (i % 2 * 4) & 15] * factor;
      }
      return;
  }
}

void Hadamard(float* x, int64_t n) {
  DCHECK(n > 0 && std::has_single_bit(static_cast<uint64_t>(n))) << n;
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * half) {
      for (int64_t i = begin; i < begin + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(n));
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

void ListTokenRows(Stream stream, const AttentionRows& rows, int32_t num_tokens, int32_t* seq) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ListTokenRows(stream, rows, num_tokens, seq);
  }
  for (int32_t r = 0; r < rows.num_rows; ++r) {
    std::fill(seq + rows.q_begin[r], seq + rows.q_begin[r + 1], r);
  }
}

void AppendRows(Stream stream, Workspace& workspace, const AppendRowsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) {
      return sm90::WriteRows(stream, {.x = args.x,
                                      .hadamard = args.hadamard,
                                      .cache = args.cache,
                                      .rows = args.rows,
                                      .index = args.positions});
    }
  }
  const int32_t width = args.cache.width;
  const size_t mark = workspace.mark();
  float* row = workspace.TakeArray<float>(width);
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    for (int32_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      std::copy_n(args.x.as<float>() + int64_t{t} * width, width, row);
      if (args.hadamard) Hadamard(row, width);
      const int32_t position = args.positions[t];
      StoreLatentRow(args.cache, args.rows.PagesOf(r)[position / args.cache.page_rows],
                     position % args.cache.page_rows, row);
    }
  }
  workspace.ResetTo(mark);
}

void LatentWrite(Stream stream, Workspace& workspace, const LatentWriteArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) {
      return sm90::WriteRows(
          stream,
          {.x = ConstTensorView{args.x.data, args.x.dtype, {args.targets.count, args.x.cols()}},
           .normed = args.norm == nullptr ? nullptr : args.x.data,
           .norm = args.norm,
           .norm_width = args.cache.width,
           .norm_eps = args.norm_eps,
           .cos_sin = args.cos_sin,
           .hadamard = args.hadamard,
           .cache = args.cache,
           .rows = args.rows,
           .seq = args.targets.seq,
           .index = args.targets.index});
    }
  }
  const int32_t width = args.cache.width, rotary = args.cache.rotary;
  DCHECK_EQ(args.x.cols(), width);
  DCHECK_LE(args.targets.count, args.x.rows());
  const size_t mark = workspace.mark();
  float* row = workspace.TakeArray<float>(width);
  for (int32_t i = 0; i < args.targets.count; ++i) {
    float* x = args.x.as<float>() + int64_t{i} * width;
    if (args.norm != nullptr) {
      const float mean = detail::Dot(x, x, width) / static_cast<float>(width);
      const float inverse = 1.0f / std::sqrt(mean + args.norm_eps);
      for (int32_t c = 0; c < width; ++c) x[c] = x[c] * inverse * args.norm[c];
    }
    const int32_t seq = args.targets.seq[i], index = args.targets.index[i];
    if (index < 0) continue;
    std::copy_n(x, width, row);
    if (args.cos_sin != nullptr) {
      RotatePairs(row + width - rotary, args.cos_sin + int64_t{i} * rotary, rotary,
                  Rotation::kForward);
    }
    if (args.hadamard) Hadamard(row, width);
    const int32_t page = args.rows.PagesOf(seq)[index / args.cache.page_rows];
    DCHECK_GE(page, 0) << "entry " << index << " has no page";
    StoreLatentRow(args.cache, page, index % args.cache.page_rows, row);
  }
  workspace.ResetTo(mark);
}

int64_t LatentWriteWorkspaceBytes(int64_t width) {
  return width * static_cast<int64_t>(sizeof(float)) + static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops
