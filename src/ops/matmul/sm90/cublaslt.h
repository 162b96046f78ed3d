#pragma once
// bf16 products of many tokens through cuBLASLt, which is loaded at run time: the library is half a
// gigabyte, and this repository's own kernels stand in where it is missing.

#include <cstdint>
#include <memory>

#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

inline constexpr int64_t kCublasLtWorkspaceBytes = int64_t{32} << 20;

// The choices cuBLASLt made on one device, by shape and number of tokens; made on first use, by
// arithmetic of its own on the host: up to 0.1 ms each, so the matrices of all layers share them.
// Any thread.
class CublasLtPlans {
 public:
  // Of the current device, kept until the process ends. Null where the library is not found; says
  // so, and where it looked, once.
  static std::shared_ptr<CublasLtPlans> OfCurrentDevice();
  virtual ~CublasLtPlans() = default;

  // Queues out = x · Wᵀ (no bias). `workspace` has kCublasLtWorkspaceBytes. False where cuBLASLt
  // has no kernel for the shape: nothing is queued.
  virtual bool Run(Stream stream, const GemmArgs& args, void* workspace) = 0;
};

}  // namespace hayate::ops::sm90
