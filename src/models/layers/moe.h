#pragma once
// A mixture of experts over the ranks of a replica. Two ways, by what the step brings:
//
//   without an exchange   ops::Moe: every rank routes all rows and runs the experts it holds; the
//                         outputs of the attention group add up to the layer
//   with one              a rank routes its share of its group's rows, sends them to their experts,
//                         runs its own experts over what arrives, and adds up what comes back. Its
//                         output is whole for its share and zero elsewhere, so the outputs of the
//                         group add up to the layer too, and to the bits of one rank alone
//
// With an exchange every rank calls this once per sparse layer and step, those without rows too.

#include <cstdint>
#include <span>

#include "models/model.h"
#include "ops/moe/moe.h"

namespace hayate::models {

struct MoeCall {
  TensorView out;                      // [T, H], of the type of x
  ConstTensorView x;                   // [T, H]
  const int32_t* token_ids = nullptr;  // [T]; only layers with listed experts read it
  const ops::MoeConfig* config = nullptr;
  const ops::MoeWeights* weights = nullptr;
  std::span<const int32_t> rows_per_rank;  // with an exchange: ForwardBatch's, of these rows
  int layer = 0;                           // of the model; −1: of a draft, not counted
};
void ApplyMoe(const ForwardContext& context, const MoeCall& call);

// What ApplyMoe does on a rank that has no rows in this layer: nothing without an exchange. x is
// [0, H], of the type that the others' have; there is no out.
void JoinMoe(const ForwardContext& context, const MoeCall& call);

// Upper bound of what ApplyMoe takes from the workspace, bytes. Of this rank: the experts it holds
// and the most rows a step has. `num_dp_ranks` may have as many each; 0: no exchange.
int64_t MoeLayerWorkspaceBytes(const ops::MoeConfig& config, int64_t num_experts,
                               int64_t max_tokens, int num_dp_ranks);

}  // namespace hayate::models
