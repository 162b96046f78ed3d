// A thread per element. Grid: [L, pieces of a row].

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/gather/sm90/gather_rows.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

template <typename To, typename From>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(To* out, int64_t out_stride, const From* from, int64_t from_stride,
               const int32_t* index, int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= width) return;
  const int64_t i = blockIdx.x;
  const int64_t row = index == nullptr ? i : index[i];
  FromFloat(ToFloat(from[row * from_stride + c]), out + i * out_stride + c);
}

template <typename To, typename From>
void Launch(const Stream& stream, const CopyColumnsArgs& args) {
  const int64_t width = args.out.cols();
  const dim3 grid(static_cast<unsigned>(args.out.rows()),
                  static_cast<unsigned>(CeilDiv(width, int64_t{kThreads})));
  LaunchDependent(stream, CopyKernel<To, From>, grid, kThreads, 0,
                  reinterpret_cast<To*>(args.out.data),
                  args.out_row_stride == 0 ? width : args.out_row_stride,
                  reinterpret_cast<const From*>(args.from.data),
                  args.from_row_stride == 0 ? width : args.from_row_stride, args.index, width);
}

template <typename To>
void LaunchTo(const Stream& stream, const CopyColumnsArgs& args) {
  if (args.from.dtype == DType::kBF16) return Launch<To, __nv_bfloat16>(stream, args);
  CHECK(args.from.dtype == DType::kF32) << Info(args.from.dtype).name;
  Launch<To, float>(stream, args);
}

}  // namespace

void CopyColumns(Stream stream, const CopyColumnsArgs& args) {
  if (args.out.rows() == 0 || args.out.cols() == 0) return;
  if (args.out.dtype == DType::kBF16) {
    LaunchTo<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.out.dtype == DType::kF32) << Info(args.out.dtype).name;
    LaunchTo<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "copy_columns", args.out.rows(), args.out.cols());
}

}  // namespace hayate::ops::sm90
