#include "ops/embedding/embedding.h"

#include <cstring>

#include "base/check.h"
#include "ops/embedding/sm90/embedding.h"
#include "ops/matmul/row_block.h"
#include "tensor/cuda_build.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

uint16_t Load16(const std::byte* source) {
  uint16_t bits;
  std::memcpy(&bits, source, sizeof(bits));
  return bits;
}

void DecodeBlocks(DType dtype, const std::byte* source, int64_t width, float* out) {
  const DTypeInfo& info = Info(dtype);
  const matmul::Layout layout = matmul::BlockLayoutOf(dtype);
  for (int64_t i = 0; i < width; i += info.block_elements, source += info.block_bytes) {
    matmul::RowBlock block;
    matmul::DecodeBlock(dtype, source, &block);
    matmul::DequantizeRowBlock(layout, block, out + i);
  }
}

// `source` may lie anywhere in a mapped file: no alignment is assumed.
void DecodeRow(DType dtype, const std::byte* source, int64_t width, float* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, source, static_cast<size_t>(width) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < width; ++i) out[i] = F16ToFloat(Load16(source + 2 * i));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < width; ++i) out[i] = Bf16ToFloat(Load16(source + 2 * i));
      return;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < width; ++i) out[i] = F8E4M3ToFloat(static_cast<uint8_t>(source[i]));
      return;
    case DType::kF8E5M2:
      for (int64_t i = 0; i < width; ++i) out[i] = F8E5M2ToFloat(static_cast<uint8_t>(source[i]));
      return;
    default:
      CHECK(IsBlockType(dtype)) << "an embedding table of " << Info(dtype).name;
      DecodeBlocks(dtype, source, width, out);
  }
}

}  // namespace

void Embedding(Stream stream, const EmbeddingArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::Embedding(stream, args);
  }
  const int64_t width = args.table.cols();
  const int64_t row_bytes = RowBytes(args.table.dtype, width);
  DCHECK_EQ(args.out.cols(), width);
  const int64_t rows = args.out.rows();
  for (int64_t t = 0; t < rows; ++t) {
    const int32_t id = args.ids[t];
    DCHECK(id >= 0 && id < args.table.rows()) << "token id " << id;
    DecodeRow(args.table.dtype, args.table.data + id * row_bytes, width,
              args.out.as<float>() + t * width);
  }
}

}  // namespace hayate::ops
