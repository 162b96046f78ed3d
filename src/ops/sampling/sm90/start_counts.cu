// Counts of the slots that begin: a block clears a row and counts the tokens generated so far.

#include "ops/detail/sm90/launch.cuh"
#include "ops/sampling/sm90/device_sampler.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads)
    StartCountsKernel(const __grid_constant__ StartCountsArgs args) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const CountsStart start = args.starts[blockIdx.x];
  if (start.counts_row < 0) return;
  int32_t* counts = args.state.counts + int64_t{start.counts_row} * args.vocab_size;
  for (int i = threadIdx.x; i < args.vocab_size; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = start.begin + static_cast<int>(threadIdx.x); i < start.end; i += kThreads) {
    atomicAdd(&counts[args.outputs[i]], 1);
  }
}

}  // namespace

void StartCounts(Stream stream, const StartCountsArgs& args) {
  if (args.num_starts == 0) return;
  LaunchDependent(stream, StartCountsKernel, dim3(static_cast<unsigned>(args.num_starts)), kThreads,
                  0, args);
  CUDA_CHECK_LAUNCH(stream, "start_counts", args.num_starts, args.vocab_size);
}

}  // namespace hayate::ops::sm90
