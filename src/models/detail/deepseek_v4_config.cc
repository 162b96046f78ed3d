#include "models/detail/deepseek_v4_config.h"

#include <bit>

#include "base/error.h"
#include "models/detail/config_checks.h"
#include "models/detail/config_readers.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/moe/router.h"

namespace hayate::models {
namespace {

using weights::Metadata;

// Compressed entries of a layer; the state of an unfinished block is bounded by it.
constexpr int64_t kMaxRatio = 1024;

Status RefuseUnsupported(const Metadata& metadata) {
  RETURN_IF_ERROR(RequireString(metadata, "hidden_act", "silu"));
  RETURN_IF_ERROR(RequireString(metadata, "scoring_func", "sqrtsoftplus"));
  RETURN_IF_ERROR(RequireString(metadata, "topk_method", "noaux_tc"));
  RETURN_IF_ERROR(RequireBool(metadata, "norm_topk_prob", true));
  RETURN_IF_ERROR(RequireBool(metadata, "attention_bias", false));
  RETURN_IF_ERROR(RequireBool(metadata, "tie_word_embeddings", false));
  RETURN_IF_ERROR(RequireInt(metadata, "num_key_value_heads", 1));
  RETURN_IF_ERROR(RequireInt(metadata, "n_shared_experts", 1));
  RETURN_IF_ERROR(RequireInt(metadata, "hc_mult", ops::kHyperStreams));
  RETURN_IF_ERROR(RequireString(metadata, "rope_scaling.type", "yarn"));
  return RequireString(metadata, "quantization_config.quant_method", "fp8");
}

Status ReadAttention(const Metadata& metadata, DeepseekV4Config& config) {
  ASSIGN_OR_RETURN(config.num_heads, ReadBounded(metadata, "num_attention_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.head_dim, ReadBounded(metadata, "head_dim", 2, kMaxWidth));
  ASSIGN_OR_RETURN(config.rotary_dim,
                   ReadBounded(metadata, "qk_rope_head_dim", 2, config.head_dim));
  ASSIGN_OR_RETURN(config.q_rank, ReadBounded(metadata, "q_lora_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.o_rank, ReadBounded(metadata, "o_lora_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.o_groups, ReadBounded(metadata, "o_groups", 1, config.num_heads));
  ASSIGN_OR_RETURN(config.window, ReadBounded(metadata, "sliding_window", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.index_heads, ReadBounded(metadata, "index_n_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.index_dim, ReadBounded(metadata, "index_head_dim", 2, kMaxWidth));
  ASSIGN_OR_RETURN(config.index_top_k, ReadBounded(metadata, "index_topk", 1, kMaxContext));
  if (config.rotary_dim % 2 != 0) {
    return Error(ErrorCode::kDataLoss, "qk_rope_head_dim is {}, must be even", config.rotary_dim);
  }
  if (config.num_heads % config.o_groups != 0) {
    return Error(ErrorCode::kDataLoss, "o_groups is {}, does not divide {} attention heads",
                 config.o_groups, config.num_heads);
  }
  if (!std::has_single_bit(static_cast<uint32_t>(config.index_dim)) ||
      config.index_dim < config.rotary_dim) {
    return Error(ErrorCode::kDataLoss,
                 "index_head_dim is {}, must be a power of two of at least {}", config.index_dim,
                 config.rotary_dim);
  }
  return OkStatus();
}

// One entry per trunk layer, then one per draft block.
Status ReadRatios(const Metadata& metadata, DeepseekV4Config& config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ratios, metadata.GetIntArray("compress_ratios"));
  const auto layers = static_cast<size_t>(config.num_layers);
  if (ratios.size() < layers) {
    return Error(ErrorCode::kDataLoss, "compress_ratios has {} entries for {} layers",
                 ratios.size(), config.num_layers);
  }
  for (size_t i = 0; i < layers; ++i) {
    if (ratios[i] < 0 || ratios[i] == 1 || ratios[i] > kMaxRatio) {
      return Error(ErrorCode::kDataLoss, "compress_ratios[{}] is {}, must be 0 or in [2, {}]", i,
                   ratios[i], kMaxRatio);
    }
    config.ratios.push_back(static_cast<int32_t>(ratios[i]));
  }
  return OkStatus();
}

// The rotation has no amplitude factor: YaRN's is 1.
Status ReadRope(const Metadata& metadata, DeepseekV4Config& config) {
  ASSIGN_OR_RETURN(const double base, metadata.GetFloat("rope_theta"));
  config.window_rope = {.head_dim = config.rotary_dim,
                        .rotary_dim = config.rotary_dim,
                        .base = static_cast<float>(base),
                        .pairing = ops::RopePairing::kInterleaved};
  config.compressed_rope = config.window_rope;
  ops::RopeConfig& rope = config.compressed_rope;
  ASSIGN_OR_RETURN(const double compressed, metadata.GetFloat("compress_rope_theta"));
  rope.base = static_cast<float>(compressed);
  rope.scaling = ops::RopeScaling::kYarn;
  rope.attention_factor = 1.0f;
  ASSIGN_OR_RETURN(rope.factor, ReadBoundedFloat(metadata, "rope_scaling.factor", 1.0, 1e6));
  ASSIGN_OR_RETURN(rope.beta_fast, ReadBoundedFloat(metadata, "rope_scaling.beta_fast", 0.01, 1e6));
  ASSIGN_OR_RETURN(rope.beta_slow, ReadBoundedFloat(metadata, "rope_scaling.beta_slow", 0.01, 1e6));
  ASSIGN_OR_RETURN(
      rope.original_context,
      ReadBounded(metadata, "rope_scaling.original_max_position_embeddings", 1, kMaxContext));
  for (const ops::RopeConfig* one : {&config.window_rope, &config.compressed_rope}) {
    const Status status = ops::ComputeRopeFrequencies(*one, config.trained_context).status();
    if (!status.ok()) return Status(ErrorCode::kDataLoss, status.message());
  }
  return OkStatus();
}

Status ReadExperts(const Metadata& metadata, DeepseekV4Config& config) {
  ASSIGN_OR_RETURN(config.num_experts, ReadBounded(metadata, "n_routed_experts", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.experts_per_token,
                   ReadBounded(metadata, "num_experts_per_tok", 1, config.num_experts));
  ASSIGN_OR_RETURN(config.expert_ffn, ReadBounded(metadata, "moe_intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_hash_layers,
                   ReadBounded(metadata, "num_hash_layers", 0, kMaxLayers, 0));
  ASSIGN_OR_RETURN(config.route_scale,
                   ReadBoundedFloat(metadata, "routed_scaling_factor", 0.0, 1e6));
  ASSIGN_OR_RETURN(config.swiglu_limit, ReadBoundedFloat(metadata, "swiglu_limit", 1e-6, 1e6));
  const Status router = ops::CheckRouter({.score = ops::RouterScore::kSqrtSoftplus,
                                          .num_experts = config.num_experts,
                                          .top_k = config.experts_per_token});
  return router.ok() ? OkStatus() : Status(ErrorCode::kDataLoss, router.message());
}

}  // namespace

Result<DeepseekV4Config> ReadDeepseekV4Config(const weights::Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  RETURN_IF_ERROR(RefuseUnsupported(metadata));
  DeepseekV4Config config;
  config.architecture = checkpoint.architecture();
  ASSIGN_OR_RETURN(config.hidden_size, ReadBounded(metadata, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_layers, ReadBounded(metadata, "num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.vocab_size, ReadBounded(metadata, "vocab_size", 1, kMaxVocab));
  ASSIGN_OR_RETURN(config.trained_context,
                   ReadBounded(metadata, "max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.norm_eps, ReadBoundedFloat(metadata, "rms_norm_eps", 0.0, 1.0));
  ASSIGN_OR_RETURN(config.hyper_iterations, ReadBounded(metadata, "hc_sinkhorn_iters", 1, 1000));
  ASSIGN_OR_RETURN(config.hyper_eps, ReadBoundedFloat(metadata, "hc_eps", 0.0, 1.0));
  RETURN_IF_ERROR(ReadAttention(metadata, config));
  RETURN_IF_ERROR(ReadRatios(metadata, config));
  RETURN_IF_ERROR(ReadRope(metadata, config));
  RETURN_IF_ERROR(ReadExperts(metadata, config));
  ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
  config.eos_ids = special.eos;
  return config;
}

}  // namespace hayate::models
