#include "models/detail/deepseek_trunk_config.h"

#include "base/error.h"
#include "models/detail/config_checks.h"
#include "models/detail/config_readers.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/moe/router.h"

namespace hayate::models {
namespace {

using weights::Metadata;

class Reader {
 public:
  Reader(const Metadata& metadata, std::string_view prefix, DeepseekTrunkConfig& config)
      : metadata_(metadata), prefix_(prefix), config_(config) {}

  Status Read() {
    RETURN_IF_ERROR(RefuseUnsupported());
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadAttention());
    RETURN_IF_ERROR(ReadRope());
    return ReadExperts();
  }

 private:
  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  Status Take(std::string_view name, int64_t low, int64_t high, int32_t& value) {
    ASSIGN_OR_RETURN(value, ReadBounded(metadata_, Key(name), low, high));
    return OkStatus();
  }
  Status Take(std::string_view name, double low, double high, float& value) {
    ASSIGN_OR_RETURN(value, ReadBoundedFloat(metadata_, Key(name), low, high));
    return OkStatus();
  }

  Status RefuseUnsupported() {
    RETURN_IF_ERROR(RequireString(metadata_, Key("hidden_act"), "silu"));
    RETURN_IF_ERROR(RequireString(metadata_, Key("scoring_func"), "sqrtsoftplus"));
    RETURN_IF_ERROR(RequireString(metadata_, Key("topk_method"), "noaux_tc"));
    RETURN_IF_ERROR(RequireBool(metadata_, Key("norm_topk_prob"), true));
    RETURN_IF_ERROR(RequireBool(metadata_, Key("attention_bias"), false));
    RETURN_IF_ERROR(RequireBool(metadata_, Key("tie_word_embeddings"), false));
    RETURN_IF_ERROR(RequireInt(metadata_, Key("num_key_value_heads"), 1));
    RETURN_IF_ERROR(RequireInt(metadata_, Key("n_shared_experts"), 1));
    RETURN_IF_ERROR(RequireInt(metadata_, Key("hc_mult"), ops::kHyperStreams));
    RETURN_IF_ERROR(RequireString(metadata_, Key("rope_scaling.type"), "yarn"));
    RETURN_IF_ERROR(RequireString(metadata_, "quantization_config.quant_method", "fp8"));
    return ReadQuantisation();
  }

  Status ReadQuantisation() {
    constexpr std::string_view kTile = "quantization_config.weight_block_size";
    if (metadata_.Has(kTile)) {
      ASSIGN_OR_RETURN(const auto sizes, metadata_.GetIntArray(kTile));
      if (sizes != std::vector<int64_t>{config_.tile, config_.tile}) {
        return Error(ErrorCode::kUnsupported, "{} must be [{}, {}] here", kTile, config_.tile,
                     config_.tile);
      }
    }
    for (const std::string_view key : {"expert_dtype", "quantization_config.expert_dtype"}) {
      ASSIGN_OR_RETURN(const std::string_view type, metadata_.GetString(key, "fp4"));
      if (type != "fp4" && type != "fp8") {
        return Error(ErrorCode::kUnsupported, "{} is '{}'; 'fp4' and 'fp8' are implemented", key,
                     type);
      }
      config_.fp8_experts |= type == "fp8";
    }
    return OkStatus();
  }

  Status ReadSizes() {
    RETURN_IF_ERROR(Take("hidden_size", 1, kMaxWidth, config_.hidden_size));
    RETURN_IF_ERROR(Take("num_hidden_layers", 1, kMaxLayers, config_.num_layers));
    RETURN_IF_ERROR(Take("vocab_size", 1, kMaxVocab, config_.vocab_size));
    RETURN_IF_ERROR(Take("max_position_embeddings", 1, kMaxContext, config_.trained_context));
    RETURN_IF_ERROR(Take("rms_norm_eps", 0.0, 1.0, config_.norm_eps));
    RETURN_IF_ERROR(Take("hc_sinkhorn_iters", 1, 1000, config_.hyper_iterations));
    return Take("hc_eps", 0.0, 1.0, config_.hyper_eps);
  }

  Status ReadAttention() {
    RETURN_IF_ERROR(Take("num_attention_heads", 1, kMaxWidth, config_.num_heads));
    RETURN_IF_ERROR(Take("head_dim", 2, kMaxWidth, config_.head_dim));
    RETURN_IF_ERROR(Take("qk_rope_head_dim", 2, config_.head_dim, config_.rotary_dim));
    RETURN_IF_ERROR(Take("q_lora_rank", 1, kMaxWidth, config_.q_rank));
    RETURN_IF_ERROR(Take("o_lora_rank", 1, kMaxWidth, config_.o_rank));
    RETURN_IF_ERROR(Take("o_groups", 1, config_.num_heads, config_.o_groups));
    RETURN_IF_ERROR(Take("sliding_window", 1, kMaxContext, config_.window));
    RETURN_IF_ERROR(Take("index_n_heads", 1, kMaxWidth, config_.index_heads));
    RETURN_IF_ERROR(Take("index_head_dim", 2, kMaxWidth, config_.index_dim));
    RETURN_IF_ERROR(Take("index_topk", 1, kMaxContext, config_.index_top_k));
    if (config_.rotary_dim % 2 != 0) {
      return Error(ErrorCode::kDataLoss, "qk_rope_head_dim is {}, must be even",
                   config_.rotary_dim);
    }
    if (config_.index_dim < config_.rotary_dim) {
      return Error(ErrorCode::kDataLoss, "index_head_dim is {}, must be at least {}",
                   config_.index_dim, config_.rotary_dim);
    }
    if (config_.num_heads % config_.o_groups != 0) {
      return Error(ErrorCode::kDataLoss, "o_groups is {}, does not divide {} attention heads",
                   config_.o_groups, config_.num_heads);
    }
    return OkStatus();
  }

  // The rotation has no amplitude factor: YaRN's is 1.
  Status ReadRope() {
    config_.window_rope = {.head_dim = config_.rotary_dim,
                           .rotary_dim = config_.rotary_dim,
                           .pairing = ops::RopePairing::kInterleaved};
    RETURN_IF_ERROR(Take("rope_theta", 1.0, 1e12, config_.window_rope.base));
    config_.compressed_rope = config_.window_rope;
    ops::RopeConfig& rope = config_.compressed_rope;
    RETURN_IF_ERROR(Take("compress_rope_theta", 1.0, 1e12, rope.base));
    rope.scaling = ops::RopeScaling::kYarn;
    rope.attention_factor = 1.0f;
    RETURN_IF_ERROR(Take("rope_scaling.factor", 1.0, 1e6, rope.factor));
    RETURN_IF_ERROR(Take("rope_scaling.beta_fast", 0.01, 1e6, rope.beta_fast));
    RETURN_IF_ERROR(Take("rope_scaling.beta_slow", 0.01, 1e6, rope.beta_slow));
    RETURN_IF_ERROR(Take("rope_scaling.original_max_position_embeddings", 1, kMaxContext,
                         rope.original_context));
    for (const ops::RopeConfig* one : {&config_.window_rope, &config_.compressed_rope}) {
      const Status status = ops::ComputeRopeFrequencies(*one, config_.trained_context).status();
      if (!status.ok()) return Status(ErrorCode::kDataLoss, status.message());
    }
    return OkStatus();
  }

  Status ReadExperts() {
    RETURN_IF_ERROR(Take("n_routed_experts", 1, kMaxWidth, config_.num_experts));
    RETURN_IF_ERROR(Take("num_experts_per_tok", 1, config_.num_experts, config_.experts_per_token));
    RETURN_IF_ERROR(Take("moe_intermediate_size", 1, kMaxWidth, config_.expert_ffn));
    RETURN_IF_ERROR(Take("routed_scaling_factor", 0.0, 1e6, config_.route_scale));
    RETURN_IF_ERROR(Take("swiglu_limit", 1e-6, 1e6, config_.swiglu_limit));
    return CheckTrunkRouter(config_.num_experts, config_.experts_per_token);
  }

  const Metadata& metadata_;
  const std::string prefix_;
  DeepseekTrunkConfig& config_;
};

}  // namespace

Status CheckTrunkRouter(int32_t num_experts, int32_t experts_per_token) {
  const Status router = ops::CheckRouter({.score = ops::RouterScore::kSqrtSoftplus,
                                          .num_experts = num_experts,
                                          .top_k = experts_per_token});
  return router.ok() ? OkStatus() : Status(ErrorCode::kDataLoss, router.message());
}

Status ReadTrunkConfig(const weights::Checkpoint& checkpoint, std::string_view prefix,
                       DeepseekTrunkConfig& config) {
  config.architecture = checkpoint.architecture();
  RETURN_IF_ERROR(Reader(checkpoint.metadata(), prefix, config).Read());
  ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
  config.eos_ids = special.eos;
  return OkStatus();
}

Result<std::vector<int32_t>> ReadCompressRatios(const Metadata& metadata, std::string_view prefix,
                                                int32_t num_layers) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ratios,
                   metadata.GetIntArray(std::string(prefix) + "compress_ratios"));
  const auto layers = static_cast<size_t>(num_layers);
  if (ratios.size() < layers) {
    return Error(ErrorCode::kDataLoss, "compress_ratios has {} entries for {} layers",
                 ratios.size(), num_layers);
  }
  for (size_t i = 0; i < ratios.size(); ++i) {
    const int64_t most = i < layers ? kMaxCompressRatio : 0;
    if (ratios[i] < 0 || ratios[i] > most) {
      return Error(ErrorCode::kDataLoss, "compress_ratios[{}] is {}, must be in [0, {}]", i,
                   ratios[i], most);
    }
  }
  return std::vector<int32_t>(ratios.begin(), ratios.begin() + num_layers);
}

}  // namespace hayate::models
