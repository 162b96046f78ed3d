#pragma once
// Sampling of one row with a given set of kernels: what Sample calls, and tests.

#include <cstdint>
#include <span>

#include "ops/sampling/detail/scan.h"
#include "ops/sampling/sampling.h"
#include "tensor/workspace.h"

namespace hayate::ops::sampling {

class Sampler {
 public:
  Sampler(const ScanKernels& kernels, Workspace& workspace)
      : kernels_(kernels), workspace_(workspace) {}

  SamplingResult Sample(const SamplingRow& row, int32_t vocab_size);

 private:
  int32_t Draw(const SamplingRow& row, std::span<const float> logits, float highest);
  int32_t DrawFromAll();
  // With top-k, top-p or both: only tokens that can be kept are looked at one by one.
  int32_t DrawFromBest(bool top_k);
  int64_t CollectFrom(uint64_t cutoff, uint64_t* keys) const;
  int64_t CollectMass(uint64_t target, uint64_t* keys) const;
  uint64_t MassOf(float logit) const;

  const ScanKernels& kernels_;
  Workspace& workspace_;
  // The row being drawn.
  const SamplingRow* row_ = nullptr;
  std::span<const float> logits_;
  float highest_ = 0.0f;
  float inv_temperature_ = 1.0f;
  uint64_t least_ = 0;  // masses below are dropped by min-p
};

}  // namespace hayate::ops::sampling
