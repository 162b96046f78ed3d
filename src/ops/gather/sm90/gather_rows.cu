// Copies rows by index, 16 bytes a thread where the rows allow it. Grid: [pieces of a row, L].

#include "ops/gather/sm90/gather_rows.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    GatherKernel(Unit* out, const Unit* from, const int32_t* index, int64_t units) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t unit = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (unit >= units) return;
  out[blockIdx.x * units + unit] = from[index[blockIdx.x] * units + unit];
}

template <typename Unit>
void Launch(const Stream& stream, const GatherRowsArgs& args, int64_t row_bytes) {
  const int64_t units = row_bytes / static_cast<int64_t>(sizeof(Unit));
  const dim3 grid(static_cast<unsigned>(args.out.rows()),
                  static_cast<unsigned>(CeilDiv(units, int64_t{kThreads})));
  LaunchDependent(stream, GatherKernel<Unit>, grid, kThreads, 0,
                  reinterpret_cast<Unit*>(args.out.data),
                  reinterpret_cast<const Unit*>(args.from.data), args.index, units);
}

}  // namespace

void GatherRows(Stream stream, const GatherRowsArgs& args) {
  const int64_t row_bytes = RowBytes(args.out.dtype, args.out.cols());
  if (args.out.rows() == 0 || row_bytes == 0) return;
  const auto bits = reinterpret_cast<uintptr_t>(args.out.data) |
                    reinterpret_cast<uintptr_t>(args.from.data) | static_cast<uintptr_t>(row_bytes);
  if (bits % 16 == 0) {
    Launch<uint4>(stream, args, row_bytes);
  } else if (bits % 4 == 0) {
    Launch<uint32_t>(stream, args, row_bytes);
  } else {
    CHECK_EQ(bits % 2, 0u);
    Launch<uint16_t>(stream, args, row_bytes);
  }
  CUDA_CHECK_LAUNCH(stream, "gather_rows", args.out.rows(), args.out.cols());
}

}  // namespace hayate::ops::sm90
