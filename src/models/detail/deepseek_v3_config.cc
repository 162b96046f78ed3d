#include "models/detail/deepseek_v3_config.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "models/detail/config_checks.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

using weights::Metadata;

constexpr std::string_view kV3 = "DeepseekV3ForCausalLM", kV32 = "DeepseekV32ForCausalLM";

Status RefuseUnsupported(const Metadata& metadata) {
  RETURN_IF_ERROR(RequireString(metadata, "hidden_act", "silu"));
  RETURN_IF_ERROR(RequireString(metadata, "scoring_func", "sigmoid"));
  RETURN_IF_ERROR(RequireString(metadata, "topk_method", "noaux_tc"));
  RETURN_IF_ERROR(RequireBool(metadata, "attention_bias", false));
  RETURN_IF_ERROR(RequireBool(metadata, "rope_interleave", true));
  RETURN_IF_ERROR(RequireInt(metadata, "moe_layer_freq", 1));
  return OkStatus();
}

Result<MoeSettings> ReadMoe(const Metadata& metadata, int32_t num_layers) {
  MoeSettings moe;
  ops::RouterConfig& router = moe.router;
  router.score = ops::RouterScore::kSigmoid;
  router.sum_epsilon = 1e-20f;
  ASSIGN_OR_RETURN(router.num_experts,
                   ReadBounded(metadata, "n_routed_experts", 1, ops::kMaxExperts));
  ASSIGN_OR_RETURN(router.top_k,
                   ReadBounded(metadata, "num_experts_per_tok", 1, ops::kMaxExpertsPerToken));
  ASSIGN_OR_RETURN(router.num_groups, ReadBounded(metadata, "n_group", 1, ops::kMaxExperts, 1));
  ASSIGN_OR_RETURN(router.top_groups, ReadBounded(metadata, "topk_group", 1, ops::kMaxExperts, 1));
  ASSIGN_OR_RETURN(router.renormalise, metadata.GetBool("norm_topk_prob", true));
  ASSIGN_OR_RETURN(const double scale, metadata.GetFloat("routed_scaling_factor", 1.0));
  router.scale = static_cast<float>(scale);
  ASSIGN_OR_RETURN(moe.expert_size, ReadBounded(metadata, "moe_intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const int32_t shared,
                   ReadBounded(metadata, "n_shared_experts", 0, kMaxWidth / moe.expert_size, 0));
  moe.shared_size = shared * moe.expert_size;
  ASSIGN_OR_RETURN(const int32_t dense,
                   ReadBounded(metadata, "first_k_dense_replace", 0, num_layers, 0));
  moe.sparse.assign(static_cast<size_t>(num_layers), true);
  std::fill_n(moe.sparse.begin(), dense, false);
  const Status fits = ops::CheckRouter(router);
  return fits.ok() ? Result<MoeSettings>(moe) : Status(ErrorCode::kDataLoss, fits.message());
}

Result<TokenIndexerSettings> ReadIndexer(const Metadata& metadata, const DeepseekV3Config& config) {
  TokenIndexerSettings indexer;
  ASSIGN_OR_RETURN(indexer.num_heads, ReadBounded(metadata, "index_n_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(indexer.head_dim, ReadBounded(metadata, "index_head_dim", 1, kMaxWidth));
  ASSIGN_OR_RETURN(indexer.top_k, ReadBounded(metadata, "index_topk", 1, kMaxContext));
  if (indexer.head_dim < config.rope_dim) {
    return Error(ErrorCode::kDataLoss, "index_head_dim {} is below qk_rope_head_dim {}",
                 indexer.head_dim, config.rope_dim);
  }
  // Packed keys go through a Hadamard transform.
  if (!std::has_single_bit(static_cast<uint32_t>(indexer.head_dim))) {
    return Error(ErrorCode::kDataLoss, "index_head_dim is {}, must be a power of two",
                 indexer.head_dim);
  }
  if (config.q_rank == 0) return Error(ErrorCode::kDataLoss, "an indexer without q_lora_rank");
  return indexer;
}

// 1 / √(Dn + R), times YaRN's mscale_all_dim squared.
float SoftmaxScale(const DeepseekV3Config& config) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.nope_dim + config.rope_dim));
  const ops::RopeConfig& rope = config.rope;
  if (rope.scaling == ops::RopeScaling::kNone || rope.mscale_all_dim == 0.0f ||
      rope.factor <= 1.0f) {
    return static_cast<float>(scale);
  }
  const double mscale = 0.1 * double{rope.mscale_all_dim} * std::log(double{rope.factor}) + 1.0;
  return static_cast<float>(scale * mscale * mscale);
}

Result<DeepseekV3Config> Read(const weights::Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  RETURN_IF_ERROR(RefuseUnsupported(metadata));
  DeepseekV3Config config;
  config.architecture = checkpoint.architecture();
  ASSIGN_OR_RETURN(config.hidden_size, ReadBounded(metadata, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_layers, ReadBounded(metadata, "num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.num_heads, ReadBounded(metadata, "num_attention_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.q_rank, ReadBounded(metadata, "q_lora_rank", 1, kMaxWidth, 0));
  ASSIGN_OR_RETURN(config.latent_dim, ReadBounded(metadata, "kv_lora_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.nope_dim, ReadBounded(metadata, "qk_nope_head_dim", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.rope_dim, ReadBounded(metadata, "qk_rope_head_dim", 2, kMaxWidth));
  ASSIGN_OR_RETURN(config.value_dim, ReadBounded(metadata, "v_head_dim", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.ffn_size, ReadBounded(metadata, "intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.vocab_size, ReadBounded(metadata, "vocab_size", 1, kMaxVocab));
  ASSIGN_OR_RETURN(config.trained_context,
                   ReadBounded(metadata, "max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(const double eps, metadata.GetFloat("rms_norm_eps", 1e-6));
  config.norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config.rope, ReadHfRope(metadata, config.rope_dim, config.trained_context));
  config.rope.pairing = ops::RopePairing::kInterleaved;
  const Status rope = ops::ComputeRopeFrequencies(config.rope, config.trained_context).status();
  if (!rope.ok()) return Status(ErrorCode::kDataLoss, rope.message());
  config.softmax_scale = SoftmaxScale(config);
  ASSIGN_OR_RETURN(config.tied_head, metadata.GetBool("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(config.fp8_block, ReadFp8Block(metadata, {}));
  ASSIGN_OR_RETURN(config.moe, ReadMoe(metadata, config.num_layers));
  ASSIGN_OR_RETURN(config.num_draft_layers,
                   ReadBounded(metadata, "num_nextn_predict_layers", 0, kMaxLayers, 0));
  if (config.architecture == kV32) {
    ASSIGN_OR_RETURN(config.indexer, ReadIndexer(metadata, config));
  }
  ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
  config.eos_ids = special.eos;
  return config;
}

}  // namespace

bool IsDeepseekV3(std::string_view architecture) {
  return architecture == kV3 || architecture == kV32;
}

Result<DeepseekV3Config> ReadDeepseekV3Config(const weights::Checkpoint& checkpoint) {
  Result<DeepseekV3Config> config = Read(checkpoint);
  if (!config.ok()) return config.status().Under(checkpoint.path().string());
  return config;
}

}  // namespace hayate::models
