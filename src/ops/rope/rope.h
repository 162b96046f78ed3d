#pragma once
// Rotary position embedding (Su et al. 2021) and the ways to stretch it, with the optional per-head
// RMS norm of queries and keys that Qwen3 applies before it.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

enum class RopeScaling : uint8_t { kNone, kLinear, kDynamicNtk, kYarn, kLlama3 };

// Which features of a head turn together.
enum class RopePairing : uint8_t {
  kHalves,      // (i, i + rotary_dim/2): Hugging Face layout
  kInterleaved  // (2i, 2i + 1): original layout, GGUF's llama after its permutation
};

struct RopeConfig {
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;  // first features of the head that turn; usually head_dim
  float base = 10000.0f;
  RopePairing pairing = RopePairing::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  int32_t original_context = 0;  // kDynamicNtk, kYarn, kLlama3
  // kYarn
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  float attention_factor = 0.0f;  // 0: derived, 0.1 ln(factor) + 1 (with mscale below where set)
  float mscale = 0.0f;
  float mscale_all_dim = 0.0f;
  bool yarn_truncate = true;  // round the correction range to whole dimensions
  // kLlama3
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  // Per-dimension divisors that a GGUF brings as `rope_freqs.weight`; [rotary_dim/2] or empty.
  std::vector<float> freq_factors;
};

// Inverse frequencies [rotary_dim/2] and the factor that multiplies cos and sin.
struct RopeFrequencies {
  std::vector<float> inv_freq;
  float attention_factor = 1.0f;
};
// kDynamicNtk is computed for a context of `max_position` tokens, so that a token's rotation does
// not depend on how long its request grew. Invalid numbers give kInvalidArgument.
Result<RopeFrequencies> ComputeRopeFrequencies(const RopeConfig& config, int32_t max_position);

struct RopeArgs {
  TensorView q;              // [T, Hq, D], turned in place; f32, or bf16 on CUDA
  TensorView k;              // [T, Hkv, D], turned in place
  int64_t q_row_stride = 0;  // elements between tokens
  int64_t k_row_stride = 0;
  // Row of cos_sin for each token, [T]; null: token t has row t.
  const int32_t* positions = nullptr;
  const float* cos_sin = nullptr;  // [·, rotary_dim]: cos then sin
  int32_t rotary_dim = 0;
  RopePairing pairing = RopePairing::kHalves;
  // Per-head RMS norm before the rotation; [D] or null.
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps = 1e-6f;
};
void Rope(Stream stream, const RopeArgs& args);

// The definition.
void RopeReference(const RopeArgs& args);

// The rows of cos and sin of a step's own tokens, computed once for all layers. Angles are taken in
// double: exact to f32 rounding at any position.
struct RopeRowsArgs {
  TensorView out;            // [T, rotary_dim] f32: cos then sin
  const int32_t* positions;  // [T]
  const float* inv_freq;     // [rotary_dim / 2]
  float attention_factor = 1.0f;
};
void RopeRows(Stream stream, const RopeRowsArgs& args);

}  // namespace hayate::ops
