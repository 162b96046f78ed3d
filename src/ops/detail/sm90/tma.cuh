#pragma once
// Bulk tensor copies between global and shared memory (the copy engine, "TMA"). One thread issues
// a copy; loads complete on an mbarrier, stores on the thread's bulk groups. Coordinates count
// elements, innermost first; what lies outside of the tensor is read as zero and not written.
//
// A tensor map travels as a __grid_constant__ kernel parameter (tensor_map.h makes it).

#include <cuda.h>

#include <cstdint>

#include "ops/detail/sm90/mbarrier.cuh"

namespace hayate::ops::sm90 {

// How long lines of a load should stay in the second-level cache.
enum class CacheHint : uint64_t {
  kNormal = 0x1000000000000000,
  kEvictFirst = 0x12F0000000000000,  // streamed once: weights of a small batch
  kEvictLast = 0x14F0000000000000,   // read again by every block: activations
};

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void Load2D(void* shared, const CUtensorMap* map, Barrier* barrier,
                                       int32_t x, int32_t y, CacheHint hint = CacheHint::kNormal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

__device__ __forceinline__ void Load3D(void* shared, const CUtensorMap* map, Barrier* barrier,
                                       int32_t x, int32_t y, int32_t z,
                                       CacheHint hint = CacheHint::kNormal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "r"(z),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

__device__ __forceinline__ void Load4D(void* shared, const CUtensorMap* map, Barrier* barrier,
                                       int32_t x, int32_t y, int32_t z, int32_t w,
                                       CacheHint hint = CacheHint::kNormal) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "r"(z), "r"(w),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

// Load2D into the same place of every block in `block_mask`; each block's own barrier at that place
// receives the bytes.
__device__ __forceinline__ void Load2DMulticast(void* shared, const CUtensorMap* map,
                                                Barrier* barrier, int32_t x, int32_t y,
                                                uint16_t block_mask,
                                                CacheHint hint = CacheHint::kNormal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5}], [%2], %3, %6;" ::"r"(
          SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "h"(block_mask), "r"(x), "r"(y),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

__device__ __forceinline__ void Load3DMulticast(void* shared, const CUtensorMap* map,
                                                Barrier* barrier, int32_t x, int32_t y, int32_t z,
                                                uint16_t block_mask,
                                                CacheHint hint = CacheHint::kNormal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5, %6}], [%2], %3, %7;" ::"r"(
          SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "h"(block_mask), "r"(x), "r"(y), "r"(z),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

__device__ __forceinline__ void Load4DMulticast(void* shared, const CUtensorMap* map,
                                                Barrier* barrier, int32_t x, int32_t y, int32_t z,
                                                int32_t w, uint16_t block_mask,
                                                CacheHint hint = CacheHint::kNormal) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], %3, %8;" ::"r"(
          SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "h"(block_mask), "r"(x), "r"(y), "r"(z), "r"(w),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

// `bytes` (a multiple of 16) of plain contiguous memory; both addresses 16-byte aligned.
__device__ __forceinline__ void LoadBytes(void* shared, const void* global, Barrier* barrier,
                                          uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(SharedAddress(barrier)), "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void Store2D(const CUtensorMap* map, const void* shared, int32_t x,
                                        int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(SharedAddress(shared)), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void CommitStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Four 8 × 8 matrices of 16-bit elements from the fragments of a warp to shared memory: lane l
// gives the 16-byte row l % 8 of matrix l / 8 its address, and has elements 2(l % 4), + 1 of row l
// / 4 of each in `words`.
__device__ __forceinline__ void StoreMatrices(void* row, const uint32_t (&words)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(row)),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
      : "memory");
}

// Until all but the newest `kPending` groups of stores have read their shared memory.
template <int kPending>
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace hayate::ops::sm90
