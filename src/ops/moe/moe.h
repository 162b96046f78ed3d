#pragma once
// A mixture of experts, whole: gate, choice, the chosen experts and the shared one, for one rank.
//
//   out[t] = Σ_{j, expert e_j on this rank} w_j · E_{e_j}(x[t])  +  g(x[t]) · S(x[t])
//   E(x) = down · glu(gate_up · x + bias) + bias,  glu as SwiGluForm says
//   g(x) = sigmoid(shared_gate · x), or 1 without a shared gate
//
// Every rank routes all tokens and computes its own experts and its part of the shared one; the
// ranks' outputs add up to the layer. A token's sum runs over its experts in a fixed order (of
// their index on the CPU, of the choice on CUDA), then the shared one, so its bits depend on the
// token alone.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/activation/clamped_swiglu.h"
#include "ops/matmul/matmul.h"
#include "ops/moe/router.h"
#include "tensor/buffer.h"
#include "tensor/workspace.h"

namespace hayate::ops {

// Where a token's routing weight enters. Equal but for rounding; V4's official code quantises the
// weighted activations.
enum class RoutingWeightPlace : uint8_t { kAfterDown, kBeforeDown };

struct MoeConfig {
  RouterConfig router;
  SwiGluForm form;  // of the routed experts and of the shared one
  RoutingWeightPlace place = RoutingWeightPlace::kAfterDown;
  int32_t hidden_size = 0;  // H
  int32_t expert_size = 0;  // F of a routed expert
  int32_t shared_size = 0;  // F of this rank's part of the shared expert; 0: none
};

// Experts [first, first + gate_up.size()) of a layer. Where a rank holds none, the lists are empty.
struct ExpertWeights {
  int32_t first = 0;
  std::vector<PackedMatrix> gate_up;  // each [2F, H]: gate, then up
  std::vector<PackedMatrix> down;     // each [H, F]
  Buffer gate_up_bias;                // [experts, 2F] f32, or empty
  Buffer down_bias;                   // [experts, H] f32, or empty
  Buffer addresses;                   // CUDA, of PlaceExperts: [2, experts] of gate_up, of down

  int64_t bytes() const;
};
// All memory of the expert at `place`, for callers that move experts between ranks: its matrices
// and rows of the biases. Two experts of equal layout (SameLayout) have parts of equal sizes, and
// whose bytes are copied to the other's place is the other's from then on.
std::vector<std::span<std::byte>> ExpertMemory(const ExpertWeights& experts, size_t place);
bool SameLayout(const ExpertWeights& a, size_t place_a, const ExpertWeights& b, size_t place_b);

// To be called once all matrices are there, before the first RunExperts. kUnsupported where the
// device has no kernel for them.
Status PlaceExperts(Device& device, ExpertWeights& experts);

// One layer's weights on one rank. Immutable once loaded, but for experts that move between steps.
struct MoeWeights {
  PackedMatrix gate;   // [E, H], packed with kExact: the choice is not to depend on the mode
  Buffer gate_bias;    // [E] f32, or empty
  Buffer choice_bias;  // [E] f32, or empty
  Buffer listed;       // [V, K] i32, or empty
  ExpertWeights experts;
  std::optional<PackedMatrix> shared_gate_up;  // [2 · shared_size, H]
  std::optional<PackedMatrix> shared_down;     // [H, shared_size]
  std::optional<PackedMatrix> shared_gate;     // [1, H], packed with kExact

  int64_t bytes() const;
};

struct MoeArgs {
  TensorView out;                      // [T, H], of the type of x
  ConstTensorView x;                   // [T, H], f32 or, on CUDA, bf16
  const int32_t* token_ids = nullptr;  // [T]; only layers with listed experts read it
  const MoeConfig* config = nullptr;
  const MoeWeights* weights = nullptr;
};
void Moe(Stream stream, Workspace& workspace, const MoeArgs& args);

// The parts of Moe, for callers whose rows travel to the ranks of their experts. First the choice:
struct ChooseExpertsArgs {
  ConstTensorView x;                   // [T, H]
  const int32_t* token_ids = nullptr;  // [T]; only layers with listed experts read it
  const MoeConfig* config = nullptr;
  const MoeWeights* weights = nullptr;
  int32_t* chosen = nullptr;  // [T, K] out: experts' indices in the layer
  float* routing = nullptr;   // [T, K] out
};
void ChooseExperts(Stream stream, Workspace& workspace, const ChooseExpertsArgs& args);

// Then what the experts gave, added up in the order in which Moe sums it, and the shared expert:
// moe.out[t] = Σ_j rows[t · K + j] + g(x[t]) · S(x[t]).
struct CombineExpertsArgs {
  MoeArgs moe;
  ConstTensorView rows;             // [T · K, H], weighted
  const int32_t* chosen = nullptr;  // [T, K]
};
void CombineExperts(Stream stream, Workspace& workspace, const CombineExpertsArgs& args);

// Last the shared expert: args.out += g(x) · S(x).
void AddSharedExpert(Stream stream, Workspace& workspace, const MoeArgs& args);

// Upper bound of what Moe takes from the workspace, bytes. `num_experts` of this rank.
int64_t MoeWorkspaceBytes(const MoeConfig& config, int64_t num_experts, int64_t max_tokens);

// The routed part alone, for callers that route or dispatch on their own. Entries whose expert is
// not on this rank add nothing.
struct ExpertsArgs {
  TensorView out;                   // [T, H]: overwritten
  ConstTensorView x;                // [T, H]
  const int32_t* chosen = nullptr;  // [T, K]: experts' indices in the layer
  const float* weights = nullptr;   // [T, K]
  const MoeConfig* config = nullptr;
  const ExpertWeights* experts = nullptr;
};
void RunExperts(Stream stream, Workspace& workspace, const ExpertsArgs& args);
// The same without the sums, for callers that add up elsewhere: out [T · K, H] gets the weighted
// result of every choice, and what it held where the expert is not on this rank. On the CPU K = 1.
void RunExpertPairs(Stream stream, Workspace& workspace, const ExpertsArgs& args);

// The definition, in plain fp32 over dequantised weights of a whole layer.
struct MoeReferenceWeights {
  std::vector<float> gate;            // [E, H]
  std::vector<float> gate_bias;       // [E] or empty
  std::vector<float> choice_bias;     // [E] or empty
  std::vector<int32_t> listed;        // [V, K] or empty
  std::vector<float> gate_up;         // [E, 2F, H]
  std::vector<float> gate_up_bias;    // [E, 2F] or empty
  std::vector<float> down;            // [E, H, F]
  std::vector<float> down_bias;       // [E, H] or empty
  std::vector<float> shared_gate_up;  // [2 · shared, H] or empty
  std::vector<float> shared_down;     // [H, shared]
  std::vector<float> shared_gate;     // [H] or empty
};
void MoeReference(const MoeConfig& config, const MoeReferenceWeights& weights, const float* x,
                  const int32_t* token_ids, int64_t num_tokens, float* out);

}  // namespace hayate::ops
