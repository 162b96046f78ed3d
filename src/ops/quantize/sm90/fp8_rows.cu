// Quantises rows that no other operator could quantise on the way: the heads' outputs before the
// output projection. A block per row; 3 bytes an element of bf16.

#include "ops/quantize/sm90/fp8_rows.h"

#include "base/align.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/quantize/sm90/quantize_row.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxChunks = 8;

template <typename X, int kChunks>
__global__ void __launch_bounds__(kMaxThreads)
    QuantizeKernel(const __grid_constant__ Fp8Rows out, const X* x, int columns) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t row = blockIdx.x;
  Eight values[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = i * blockDim.x + threadIdx.x;
    if (chunk < columns / 8) values[i] = LoadEight(x + row * columns + chunk * 8);
  }
  QuantizeRow<kChunks>(out, row, columns, 0, values);
}

template <typename X>
void Launch(const Stream& stream, const QuantizeRowsArgs& args) {
  const int columns = static_cast<int>(args.x.cols());
  const int per_thread = CeilDiv(columns / 8, kMaxThreads);
  CHECK_LE(per_thread, kMaxChunks) << columns << " columns";
  const auto kernel = per_thread == 1   ? QuantizeKernel<X, 1>
                      : per_thread == 2 ? QuantizeKernel<X, 2>
                      : per_thread <= 4 ? QuantizeKernel<X, 4>
                                        : QuantizeKernel<X, kMaxChunks>;
  const dim3 threads(static_cast<unsigned>(AlignUp(CeilDiv(columns / 8, per_thread), 32)));
  LaunchDependent(stream, kernel, dim3(static_cast<unsigned>(args.x.rows())), threads, 0, args.out,
                  reinterpret_cast<const X*>(args.x.data), columns);
}

}  // namespace

void QuantizeRows(Stream stream, const QuantizeRowsArgs& args) {
  CheckFp8Rows(args.out, args.x.cols());
  if (args.x.rows() == 0) return;
  if (args.x.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.x.dtype == DType::kF32) << Info(args.x.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "quantize_rows", args.x.rows(), args.x.cols());
}

}  // namespace hayate::ops::sm90
