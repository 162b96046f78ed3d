#pragma once
// The chosen experts of a mixture on a CUDA device: pairs of a token and an expert are grouped by
// expert on the device, in tiles that a launch grid of fixed size covers; then one grouped product
// makes the gated units, one brings them down, and each token's results are added in the order of
// its choice. Nothing depends on what the host knows of the choice.

#include <cstdint>

#include "ops/moe/moe.h"
#include "ops/moe/sm90/grouped_product.h"

namespace hayate::ops::sm90 {

// Uploads where the matrices lie. kUnsupported where experts differ in layout or are of a type
// without a grouped kernel.
Status PlaceExperts(Device& device, ExpertWeights& experts);

void Moe(Stream stream, Workspace& workspace, const MoeArgs& args);
void RunExperts(Stream stream, Workspace& workspace, const ExpertsArgs& args);
void ChooseExperts(Stream stream, Workspace& workspace, const ChooseExpertsArgs& args);
void RunExpertPairs(Stream stream, Workspace& workspace, const ExpertsArgs& args);
void CombineExperts(Stream stream, Workspace& workspace, const CombineExpertsArgs& args);
void AddSharedExpert(Stream stream, Workspace& workspace, const MoeArgs& args);
int64_t MoeWorkspaceBytes(const MoeConfig& config, int64_t num_experts, int64_t max_tokens);

// `chosen` [num_pairs]; experts [first, first + num_experts) are the rank's.
struct GroupPairsArgs {
  GroupedPairs out;
  const int32_t* chosen = nullptr;
  int32_t num_pairs = 0;
  int32_t first = 0;
  int32_t num_experts = 0;
};
void GroupPairs(Stream stream, const GroupPairsArgs& args);

// out[t] = Σ_j results[t · K + j] over experts of this rank, in order of j, + σ(shared_gate[t]) ·
// shared[t].
struct AddUpArgs {
  TensorView out;                   // [T, H]; may be the results where top_k is 1
  ConstTensorView results;          // [T · K, H], of the type of out
  const int32_t* chosen = nullptr;  // [T, K]; null: all are of this rank
  int32_t top_k = 0;
  int32_t first = 0;
  int32_t num_experts = 0;
  ConstTensorView shared;              // [T, H] or no data
  const float* shared_gate = nullptr;  // [T] or null: 1
};
void AddUpExperts(Stream stream, const AddUpArgs& args);

}  // namespace hayate::ops::sm90
