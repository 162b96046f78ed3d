#pragma once
// What the blocks of a launch share with each other and with the launches around them: register
// budgets of warp roles, named barriers, clusters, programmatic dependent launch.

#include <cstdint>

#include "tensor/cuda/dependent_launch.cuh"

namespace hayate::ops::sm90 {

// Registers per thread of the calling warpgroup, a multiple of 8. The kernel needs
// __launch_bounds__(threads, 1), and all four warps of the group must call it.
template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barrier `id` (1 … 15; 0 is __syncthreads) of `threads` threads of the block.
__device__ __forceinline__ void SyncThreads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void ArriveThreads(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// True in one lane of a warp whose lanes have converged.
__device__ __forceinline__ bool ElectLane() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void ClusterSync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

using hayate::cuda::AllowNextLaunch;
using hayate::cuda::LaunchDependent;
using hayate::cuda::WaitForPriorLaunches;

// Products of more tokens let a row-wise launch begin only when they have ended. Its blocks do not
// fit beside theirs: begun early, they crowd on the multiprocessors that are free first, with the
// little first-level cache that a product leaves.
inline constexpr int kMaxTokensBeside = 64;

}  // namespace hayate::ops::sm90
