#pragma once
// The ranks of one replica that compute together, and what they exchange. Every rank's thread holds
// its own Group object; all ranks make the same calls in the same order with the same sizes.
//
// Sums are taken in rank order on every rank, so all ranks see the same bits, run after run. A call
// neither allocates nor, on the CPU, enters the kernel unless a partner is late.

#include <memory>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::comm {

// A sum over the ranks with what a transformer does with it.
struct SumNormArgs {
  TensorView residual;  // [T, H] f32, in and out: residual += Σ over ranks of part
  TensorView part;      // [T, H] f32 or bf16; unspecified afterwards
  TensorView out;       // [T, H], dtype of part: residual / √(mean(residual²) + eps) · weight
  const float* weight;  // [H] f32
  float eps = 1e-5f;
};

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // data = Σ over ranks of data. f32, the same shape on every rank.
  virtual void AllReduce(Stream stream, TensorView data) = 0;
  // The same with the residual's sum and the norm, in one launch, where the group has one for these
  // shapes; otherwise it does nothing and returns false, on all ranks alike.
  virtual bool AllReduceAddNorm(Stream /*stream*/, const SumNormArgs& /*args*/) { return false; }
  // out = the ranks' parts, in rank order. All parts have the same bytes; out is size() times as
  // long.
  virtual void AllGather(Stream stream, ConstTensorView part, TensorView out) = 0;
  // What any rank wrote before its call is seen by every rank after it.
  virtual void Barrier(Stream stream) = 0;

  // A rank that cannot go on calls Poison, from any thread. From then on no call of any rank waits,
  // what they leave in their outputs is unspecified, and poisoned() is true on every rank: look
  // once a step.
  virtual void Poison() = 0;
  virtual bool poisoned() const = 0;
};

inline constexpr int kMaxLocalRanks = 256;

// A group of `num_ranks` threads of this process that exchange through shared memory; element r is
// handed to the thread of rank r. num_ranks in [1, kMaxLocalRanks]; a group of one never waits.
Result<std::vector<std::unique_ptr<Group>>> MakeLocalGroup(int num_ranks);

}  // namespace hayate::comm
