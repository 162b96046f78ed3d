// Rows of the embedding table in fp32. Grid: [T, pieces of a row]; a thread decodes four
// neighbours and stores 16 bytes. Writes 4 bytes an element, reads what the table's type has.

#include "ops/embedding/sm90/embedding.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/detail/sm90/stored_element.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    EmbeddingKernel(float* out, const int32_t* ids, const uint8_t* table, int64_t row_bytes,
                    int64_t columns) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t begin = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kPerThread;
  if (begin >= columns) return;
  const uint8_t* row = table + ids[blockIdx.x] * row_bytes;
  float* to = out + blockIdx.x * columns + begin;
  if (columns % kPerThread == 0) {
    float v[kPerThread];
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) v[j] = StoredElement<kType>(row, begin + j);
    *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    for (int j = 0; j < kPerThread && begin + j < columns; ++j) {
      to[j] = StoredElement<kType>(row, begin + j);
    }
  }
}

using Kernel = void (*)(float*, const int32_t*, const uint8_t*, int64_t, int64_t);

Kernel KernelFor(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return EmbeddingKernel<DType::kF32>;
    case DType::kF16:
      return EmbeddingKernel<DType::kF16>;
    case DType::kBF16:
      return EmbeddingKernel<DType::kBF16>;
    case DType::kF8E4M3:
      return EmbeddingKernel<DType::kF8E4M3>;
    case DType::kF8E5M2:
      return EmbeddingKernel<DType::kF8E5M2>;
    case DType::kQ4_0:
      return EmbeddingKernel<DType::kQ4_0>;
    case DType::kQ4_1:
      return EmbeddingKernel<DType::kQ4_1>;
    case DType::kQ5_0:
      return EmbeddingKernel<DType::kQ5_0>;
    case DType::kQ5_1:
      return EmbeddingKernel<DType::kQ5_1>;
    case DType::kQ8_0:
      return EmbeddingKernel<DType::kQ8_0>;
    case DType::kIQ4_NL:
      return EmbeddingKernel<DType::kIQ4_NL>;
    case DType::kMXFP4:
      return EmbeddingKernel<DType::kMXFP4>;
    case DType::kQ2_K:
      return EmbeddingKernel<DType::kQ2_K>;
    case DType::kQ3_K:
      return EmbeddingKernel<DType::kQ3_K>;
    case DType::kQ4_K:
      return EmbeddingKernel<DType::kQ4_K>;
    case DType::kQ5_K:
      return EmbeddingKernel<DType::kQ5_K>;
    case DType::kQ6_K:
      return EmbeddingKernel<DType::kQ6_K>;
    default:
      return nullptr;
  }
}

}  // namespace

void Embedding(Stream stream, const EmbeddingArgs& args) {
  const int64_t rows = args.out.rows(), columns = args.table.cols();
  if (rows == 0) return;
  const Kernel kernel = KernelFor(args.table.dtype);
  CHECK(kernel != nullptr) << "an embedding table of " << Info(args.table.dtype).name;
  DCHECK(args.out.dtype == DType::kF32 && args.out.cols() == columns);
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>(CeilDiv(columns, int64_t{kThreads * kPerThread})));
  LaunchDependent(stream, kernel, grid, kThreads, 0, reinterpret_cast<float*>(args.out.data),
                  args.ids, reinterpret_cast<const uint8_t*>(args.table.data),
                  RowBytes(args.table.dtype, columns), columns);
  CUDA_CHECK_LAUNCH(stream, "embedding", rows, columns);
}

}  // namespace hayate::ops::sm90
