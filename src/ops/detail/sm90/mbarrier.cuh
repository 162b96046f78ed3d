#pragma once
// mbarrier objects in shared memory: what a producer (the bulk copy engine) and its consumers wait
// on. A barrier counts arrivals and outstanding bytes; when both reach zero its phase flips. The
// waiter passes the parity of the phase that it waits for: 0 for the first, then alternating.

#include <cstdint>

namespace hayate::ops::sm90 {

using Barrier = uint64_t;  // in shared memory, 8-byte aligned

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void InitBarrier(Barrier* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals));
}

// After the InitBarrier calls of one thread, before the block (or cluster) synchronises: makes them
// visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Before the copy engine or the tensor cores read shared memory that ordinary stores wrote: in each
// writing thread, before the barrier that hands it over.
__device__ __forceinline__ void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void Arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// Arrives on the same barrier of block `rank` of the cluster. Orders nothing but what the tensor
// cores and the copy engine have finished: a release at cluster scope would cost a fence of the
// whole device at every call.
__device__ __forceinline__ void ArriveRemote(Barrier* barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(SharedAddress(barrier)),
      "r"(rank)
      : "memory");
}

// One arrival that also announces `bytes` of bulk copies that will complete on this barrier.
__device__ __forceinline__ void ArriveExpectBytes(Barrier* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ bool TryWait(Barrier* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(SharedAddress(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void Wait(Barrier* barrier, uint32_t parity) {
  while (!TryWait(barrier, parity)) {
  }
}

// A stage of a ring and the parity of its current round.
struct RingState {
  uint32_t stage = 0;
  uint32_t parity = 0;

  template <int kStages>
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace hayate::ops::sm90
