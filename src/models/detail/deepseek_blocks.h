#pragma once
// What DeepSeek V4 and V4.1 are both built of: the weights of hyper-connections, of the mixture of
// experts and of the grouped output projection, as the vendor's checkpoints name them.

#include <cstdint>
#include <string>
#include <vector>

#include "models/detail/vendor_tensors.h"
#include "models/layers/linear.h"
#include "ops/grouped_matmul/grouped_matmul.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/moe/moe.h"

namespace hayate::models {

struct HyperWeights {
  Linear fn;           // [24, 4H], or [4, 4H] at the end of V4's trunk
  Buffer base, scale;  // f32

  ops::HyperConnection View(float norm_eps, float eps, int32_t iterations) const;
  int64_t bytes() const;
};

// "<prefix>_fn", "_base" and "_scale".
Result<HyperWeights> LoadHyper(VendorTensors& tensors, const std::string& prefix, int64_t outputs,
                               int64_t scales, int64_t hidden_size);

// Heads in groups: each group goes down to a rank of its own, then all ranks go up to H together. A
// rank of the replica holds whole groups.
struct GroupedOutput {
  ops::MatrixGroup down;  // per group of this rank [o_rank, heads of a group × D]
  Linear up;              // [H, groups of this rank × o_rank]

  int64_t bytes() const;
};

struct GroupedOutputShape {
  int64_t hidden_size = 0;
  int64_t groups = 0;       // of all ranks
  int64_t group_width = 0;  // features of a group's heads
  int64_t o_rank = 0;
};
// Groups of this rank: cut so that no block of a quantised weight is.
Range SplitGroups(const GroupedOutputShape& shape, const LoadOptions& options);
// "<prefix>.wo_a" and ".wo_b".
Result<GroupedOutput> LoadGroupedOutput(VendorTensors& tensors, const std::string& prefix,
                                        const GroupedOutputShape& shape, Range groups);
// out [T, H] = this rank's part for heads [T, heads, D].
void ApplyGroupedOutput(Stream stream, Workspace& workspace, const GroupedOutput& output,
                        ConstTensorView heads, TensorView out);
int64_t GroupedOutputWorkspaceBytes(const GroupedOutputShape& shape, int64_t max_tokens);

// Which part of a layer's experts a rank holds: whole experts, and features of the shared one.
struct ExpertsShape {
  int32_t hidden_size = 0;
  int32_t num_experts = 0;
  int32_t expert_size = 0;
  Range
      experts;  // of this rank; where rows travel their places, and a layer's placement says which
  int num_dp_ranks = 0;  // whose rows travel; 0: none do
  Range shared;          // features of this rank
};
ExpertsShape SplitExperts(int32_t hidden_size, int32_t num_experts, int32_t expert_size,
                          const LoadOptions& options);
// "<prefix>.gate.weight", ".experts.<e>" and ".shared_experts" of layer `index`; the biases and
// lists of the gate are the caller's.
Status LoadExperts(VendorTensors& tensors, const std::string& prefix, const ExpertsShape& shape,
                   int index, ops::MoeWeights& layer);

}  // namespace hayate::models
