// GGUF metadata: keys are "<architecture>.<name>"; what a file does not say (biases, a head of its
// own) shows in which tensors it has.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/detail/config_readers.h"
#include "weights/dequantize.h"

namespace hayate::models {
namespace {

using weights::Checkpoint;
using weights::Metadata;

class Keys {
 public:
  explicit Keys(const Checkpoint& checkpoint)
      : metadata_(checkpoint.metadata()), prefix_(checkpoint.architecture() + ".") {}

  std::string operator()(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return metadata_.Has((*this)(name)); }
  Result<int32_t> Int(std::string_view name, int64_t high) const {
    return ReadBounded(metadata_, (*this)(name), 1, high);
  }
  Result<int32_t> Int(std::string_view name, int64_t high, int64_t fallback) const {
    return ReadBounded(metadata_, (*this)(name), 1, high, fallback);
  }
  Result<float> Float(std::string_view name, double fallback) const {
    ASSIGN_OR_RETURN(const double value, metadata_.GetFloat((*this)(name), fallback));
    return static_cast<float>(value);
  }
  Result<std::string_view> String(std::string_view name, std::string_view fallback) const {
    return metadata_.GetString((*this)(name), fallback);
  }

 private:
  const Metadata& metadata_;
  const std::string prefix_;
};

Result<std::vector<float>> ReadFreqFactors(const Checkpoint& checkpoint, int32_t pairs) {
  std::vector<float> factors;
  if (!checkpoint.Has("rope_freqs.weight")) return factors;
  ASSIGN_OR_RETURN(const ConstTensorView tensor,
                   checkpoint.Tensor("rope_freqs.weight", Shape{pairs}));
  factors.resize(static_cast<size_t>(pairs));
  weights::Dequantize(tensor, factors);
  return factors;
}

Result<ops::RopeConfig> ReadRope(const Checkpoint& checkpoint, const Keys& keys,
                                 const ModelConfig& config, Family family) {
  ops::RopeConfig rope;
  rope.head_dim = config.head_dim;
  // The converter permutes the rows of Llama's q and k so that pairs lie side by side.
  rope.pairing =
      family == Family::kLlama ? ops::RopePairing::kInterleaved : ops::RopePairing::kHalves;
  ASSIGN_OR_RETURN(rope.rotary_dim, keys.Int("rope.dimension_count", kMaxWidth, config.head_dim));
  ASSIGN_OR_RETURN(rope.base, keys.Float("rope.freq_base", 10000.0));
  ASSIGN_OR_RETURN(const std::string_view type, keys.String("rope.scaling.type", "none"));
  // "linear" with factor 1 is what converters write for no scaling.
  if (type == "linear") {
    rope.scaling = ops::RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = ops::RopeScaling::kYarn;
  } else if (type != "none") {
    return Error(ErrorCode::kUnsupported, "{} is '{}'", keys("rope.scaling.type"), type);
  }
  ASSIGN_OR_RETURN(rope.factor, keys.Float("rope.scaling.factor", 1.0));
  ASSIGN_OR_RETURN(rope.original_context, keys.Int("rope.scaling.original_context_length",
                                                   kMaxContext, config.trained_context));
  if (keys.Has("rope.scaling.attn_factor")) {
    // GGUF's factor multiplies the derived one instead of replacing it.
    ASSIGN_OR_RETURN(const float times, keys.Float("rope.scaling.attn_factor", 1.0));
    rope.attention_factor = times * (0.1f * std::log(std::max(rope.factor, 1.0f)) + 1.0f);
  }
  ASSIGN_OR_RETURN(rope.beta_fast, keys.Float("rope.scaling.yarn_beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope.beta_slow, keys.Float("rope.scaling.yarn_beta_slow", 1.0));
  ASSIGN_OR_RETURN(rope.freq_factors, ReadFreqFactors(checkpoint, rope.rotary_dim / 2));
  return rope;
}

Result<int32_t> ReadVocabSize(const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const ConstTensorView table, checkpoint.Tensor("token_embd.weight"));
  if (table.shape.rank() != 2 || table.shape[0] < 1 || table.shape[0] > kMaxVocab) {
    return Error(ErrorCode::kDataLoss, "tensor 'token_embd.weight' has shape {}",
                 table.shape.ToString());
  }
  return static_cast<int32_t>(table.shape[0]);
}

}  // namespace

namespace {

// What the files do not say is the architecture's: how a router scores, and how experts clamp.
Result<MoeSettings> ReadMoe(const Checkpoint& checkpoint, const Keys& keys, Family family,
                            int32_t num_layers) {
  MoeSettings moe;
  ASSIGN_OR_RETURN(moe.router.num_experts, keys.Int("expert_count", ops::kMaxExperts));
  ASSIGN_OR_RETURN(moe.router.top_k, keys.Int("expert_used_count", ops::kMaxExpertsPerToken));
  ASSIGN_OR_RETURN(moe.expert_size, keys.Int("expert_feed_forward_length", kMaxWidth));
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    moe.sparse.push_back(checkpoint.Has("blk." + std::to_string(layer) + ".ffn_gate_inp.weight"));
  }
  if (family == Family::kGptOss) {
    moe.router.score = ops::RouterScore::kSoftmaxOfChosen;
    moe.form = {7.0f, 1.702f, 1.0f};
    moe.router_bias = moe.expert_bias = true;
    return moe;
  }
  moe.router.score = ops::RouterScore::kSoftmax;
  ASSIGN_OR_RETURN(
      moe.router.renormalise,
      checkpoint.metadata().GetBool(keys("expert_weights_norm"), family == Family::kQwen3Moe));
  if (family == Family::kQwen2Moe) {
    ASSIGN_OR_RETURN(moe.shared_size, keys.Int("expert_shared_feed_forward_length", kMaxWidth));
    moe.shared_gate = true;
  }
  return moe;
}

bool IsSparseFamily(Family family) {
  return family == Family::kQwen2Moe || family == Family::kQwen3Moe || family == Family::kGptOss;
}

}  // namespace

Result<ModelConfig> ReadGgufConfig(const Checkpoint& checkpoint, Family family) {
  const Keys keys(checkpoint);
  if (keys.Has("expert_count") && !IsSparseFamily(family)) {
    return Error(ErrorCode::kUnsupported, "{}: a mixture of experts of this architecture",
                 keys("expert_count"));
  }
  ModelConfig config;
  ASSIGN_OR_RETURN(config.hidden_size, keys.Int("embedding_length", kMaxWidth));
  ASSIGN_OR_RETURN(config.num_layers, keys.Int("block_count", kMaxLayers));
  ASSIGN_OR_RETURN(config.num_heads, keys.Int("attention.head_count", kMaxWidth));
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   keys.Int("attention.head_count_kv", kMaxWidth, config.num_heads));
  ASSIGN_OR_RETURN(config.head_dim, keys.Int("attention.key_length", kMaxWidth,
                                             std::max(1, config.hidden_size / config.num_heads)));
  ASSIGN_OR_RETURN(const int32_t value_length,
                   keys.Int("attention.value_length", kMaxWidth, config.head_dim));
  if (value_length != config.head_dim) {
    return Error(ErrorCode::kUnsupported, "{} is {}, but {} is {}", keys("attention.value_length"),
                 value_length, keys("attention.key_length"), config.head_dim);
  }
  ASSIGN_OR_RETURN(config.ffn_size, keys.Int("feed_forward_length", kMaxWidth));
  ASSIGN_OR_RETURN(config.trained_context, keys.Int("context_length", kMaxContext));
  ASSIGN_OR_RETURN(config.norm_eps, keys.Float("attention.layer_norm_rms_epsilon", 1e-5));
  ASSIGN_OR_RETURN(config.vocab_size, ReadVocabSize(checkpoint));
  ASSIGN_OR_RETURN(config.rope, ReadRope(checkpoint, keys, config, family));
  config.qkv_bias = checkpoint.Has("blk.0.attn_q.bias");
  config.output_bias = checkpoint.Has("blk.0.attn_output.bias");
  config.mlp_bias = checkpoint.Has("blk.0.ffn_down.bias");
  config.qk_norm = family == Family::kQwen3 || family == Family::kQwen3Moe;
  config.attention_sinks = family == Family::kGptOss;
  config.tied_head = !checkpoint.Has("output.weight");
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
  // Mistral's files: one window for all layers. Other families' files do not say which layers have
  // it.
  if (family == Family::kLlama) {
    ASSIGN_OR_RETURN(
        const int32_t window,
        ReadBounded(checkpoint.metadata(), keys("attention.sliding_window"), 0, kMaxContext, 0));
    config.windows.assign(static_cast<size_t>(config.num_layers), window);
  }
  if (family == Family::kGptOss) {
    ASSIGN_OR_RETURN(const int32_t window, keys.Int("attention.sliding_window", kMaxContext));
    for (size_t i = 0; i < config.windows.size(); i += 2) config.windows[i] = window;
    config.rope.yarn_truncate = false;
  }
  if (IsSparseFamily(family)) {
    ASSIGN_OR_RETURN(config.moe, ReadMoe(checkpoint, keys, family, config.num_layers));
  }
  return config;
}

}  // namespace hayate::models
