// The mixture-of-experts fields of config.json: Qwen2-MoE, Qwen3-MoE and GPT-OSS.

#include "base/error.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

using weights::Metadata;

constexpr int64_t kMaxExperts = ops::kMaxExperts;

// Two names of one number: files have either, or both and then equal.
Result<int32_t> ReadEither(const Metadata& metadata, std::string_view name, std::string_view other,
                           int64_t high) {
  const std::string_view present = metadata.Has(name) ? name : other;
  ASSIGN_OR_RETURN(const int32_t value, ReadBounded(metadata, present, 1, high));
  if (metadata.Has(name) && metadata.Has(other)) {
    ASSIGN_OR_RETURN(const int32_t second, ReadBounded(metadata, other, 1, high));
    if (second != value) {
      return Error(ErrorCode::kDataLoss, "{} is {}, but {} is {}", name, value, other, second);
    }
  }
  return value;
}

// Layers are sparse every `decoder_sparse_step`, but for those that mlp_only_layers names.
Result<std::vector<bool>> ReadSparseLayers(const Metadata& metadata, int32_t num_layers) {
  ASSIGN_OR_RETURN(const int32_t step,
                   ReadBounded(metadata, "decoder_sparse_step", 1, kMaxLayers, 1));
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int32_t i = 0; i < num_layers; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
  if (!metadata.Has("mlp_only_layers")) return sparse;
  ASSIGN_OR_RETURN(const auto dense, metadata.GetIntArray("mlp_only_layers"));
  for (const int64_t layer : dense) {
    if (layer < 0 || layer >= num_layers) {
      return Error(ErrorCode::kDataLoss, "mlp_only_layers names layer {} of {}", layer, num_layers);
    }
    sparse[static_cast<size_t>(layer)] = false;
  }
  return sparse;
}

Result<MoeSettings> ReadGptOss(const Metadata& metadata, const ModelConfig& config) {
  MoeSettings moe;
  ops::RouterConfig& router = moe.router;
  router.score = ops::RouterScore::kSoftmaxOfChosen;
  ASSIGN_OR_RETURN(router.num_experts,
                   ReadEither(metadata, "num_local_experts", "num_experts", kMaxExperts));
  ASSIGN_OR_RETURN(router.top_k, ReadEither(metadata, "num_experts_per_tok", "experts_per_token",
                                            ops::kMaxExpertsPerToken));
  ASSIGN_OR_RETURN(const double limit, metadata.GetFloat("swiglu_limit", 7.0));
  ASSIGN_OR_RETURN(const double alpha, metadata.GetFloat("swiglu_alpha", 1.702));
  if (!(limit > 0.0)) {
    return Error(ErrorCode::kDataLoss, "swiglu_limit is {}, must be above 0", limit);
  }
  moe.form = {static_cast<float>(limit), static_cast<float>(alpha), 1.0f};
  moe.expert_size = config.ffn_size;
  moe.router_bias = moe.expert_bias = true;
  moe.sparse.assign(static_cast<size_t>(config.num_layers), true);
  return moe;
}

}  // namespace

Result<MoeSettings> ReadHfMoe(const Metadata& metadata, const ModelConfig& config, Family family) {
  if (family == Family::kGptOss) return ReadGptOss(metadata, config);
  MoeSettings moe;
  ops::RouterConfig& router = moe.router;
  router.score = ops::RouterScore::kSoftmax;
  ASSIGN_OR_RETURN(router.num_experts,
                   ReadEither(metadata, "num_experts", "num_local_experts", kMaxExperts));
  ASSIGN_OR_RETURN(router.top_k,
                   ReadBounded(metadata, "num_experts_per_tok", 1, ops::kMaxExpertsPerToken));
  ASSIGN_OR_RETURN(router.renormalise, metadata.GetBool("norm_topk_prob", false));
  ASSIGN_OR_RETURN(moe.expert_size, ReadBounded(metadata, "moe_intermediate_size", 1, kMaxWidth));
  if (family == Family::kQwen2Moe) {
    ASSIGN_OR_RETURN(moe.shared_size,
                     ReadBounded(metadata, "shared_expert_intermediate_size", 1, kMaxWidth));
    moe.shared_gate = true;
  }
  ASSIGN_OR_RETURN(moe.sparse, ReadSparseLayers(metadata, config.num_layers));
  return moe;
}

Result<Fp8Block> ReadFp8Block(const Metadata& metadata, std::span<const std::string_view> others) {
  Fp8Block block;
  if (!metadata.Has("quantization_config.quant_method")) return block;
  ASSIGN_OR_RETURN(const auto method, metadata.GetString("quantization_config.quant_method"));
  for (const std::string_view other : others) {
    if (method == other) return block;
  }
  if (method != "fp8") {
    ASSIGN_OR_RETURN(const auto algorithm,
                     metadata.GetString("quantization_config.quant_algo", ""));
    return Error(ErrorCode::kUnsupported,
                 "quantization_config.quant_method is '{}'{}{}; of safetensors' weights there are "
                 "16-bit ones, 'fp8' in blocks and GPT-OSS' 'mxfp4'",
                 method, algorithm.empty() ? "" : " of ", algorithm);
  }
  constexpr std::string_view kBlockKey = "quantization_config.weight_block_size";
  if (!metadata.Has(kBlockKey)) {
    return Error(ErrorCode::kUnsupported, "quantization_config of fp8 without weight_block_size");
  }
  ASSIGN_OR_RETURN(const auto sizes, metadata.GetIntArray(kBlockKey));
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[0] > kMaxWidth || sizes[1] < 1 ||
      sizes[1] > kMaxWidth || sizes[1] % 32 != 0) {
    return Error(ErrorCode::kDataLoss, "{} must be two sizes, the second a multiple of 32",
                 kBlockKey);
  }
  return Fp8Block{static_cast<int32_t>(sizes[0]), static_cast<int32_t>(sizes[1])};
}

}  // namespace hayate::models
