// Gated units element by element. Grid: [T, pieces of a row]. Traffic: 3 elements per element of
// the result.

#include "ops/activation/sm90/clamped_swiglu.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/activation/sm90/glu.cuh"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GluKernel(T* out, const T* gate_up, int64_t columns, SwiGluForm form) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t row = blockIdx.x;
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= columns) return;
  const T* gate = gate_up + row * 2 * columns;
  FromFloat(GatedUnit(ToFloat(gate[i]), ToFloat(gate[columns + i]), form), out + row * columns + i);
}

template <typename T>
void Launch(const Stream& stream, const ClampedSwiGluArgs& args) {
  const int64_t columns = args.out.cols();
  const dim3 grid(static_cast<unsigned>(args.out.rows()),
                  static_cast<unsigned>(CeilDiv<int64_t>(columns, kThreads)));
  LaunchDependent(stream, GluKernel<T>, grid, kThreads, 0, reinterpret_cast<T*>(args.out.data),
                  reinterpret_cast<const T*>(args.gate_up.data), columns, args.form);
}

}  // namespace

void ClampedSwiGlu(Stream stream, const ClampedSwiGluArgs& args) {
  DCHECK(args.out.dtype == args.gate_up.dtype);
  if (args.out.rows() == 0 || args.out.cols() == 0) return;
  if (args.out.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.out.dtype == DType::kF32) << Info(args.out.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "clamped_swiglu", args.out.rows(), args.out.cols());
}

}  // namespace hayate::ops::sm90
