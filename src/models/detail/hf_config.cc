// config.json as Hugging Face transformers writes it: version 5 nests the rotary settings in
// rope_parameters, version 4 has rope_theta and rope_scaling at the top.

#include <algorithm>

#include "base/error.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

using weights::Metadata;

Result<ops::RopeScaling> ScalingOf(std::string_view key, std::string_view type) {
  if (type == "default") return ops::RopeScaling::kNone;
  if (type == "linear") return ops::RopeScaling::kLinear;
  if (type == "dynamic") return ops::RopeScaling::kDynamicNtk;
  if (type == "yarn") return ops::RopeScaling::kYarn;
  if (type == "llama3") return ops::RopeScaling::kLlama3;
  return Error(ErrorCode::kUnsupported, "{} is '{}'", key, type);
}

// The settings under `prefix`, "rope_parameters." or "rope_scaling.".
Status ReadScaling(const Metadata& metadata, const std::string& prefix, ops::RopeConfig& rope) {
  const auto key = [&](std::string_view name) { return prefix + std::string(name); };
  const auto read = [&](std::string_view name, float& value) -> Status {
    ASSIGN_OR_RETURN(const double number, metadata.GetFloat(key(name), double{value}));
    value = static_cast<float>(number);
    return OkStatus();
  };
  const std::string type_key = metadata.Has(key("rope_type")) ? key("rope_type") : key("type");
  ASSIGN_OR_RETURN(const std::string_view type, metadata.GetString(type_key, "default"));
  ASSIGN_OR_RETURN(rope.scaling, ScalingOf(type_key, type));
  RETURN_IF_ERROR(read("factor", rope.factor));
  RETURN_IF_ERROR(read("beta_fast", rope.beta_fast));
  RETURN_IF_ERROR(read("beta_slow", rope.beta_slow));
  RETURN_IF_ERROR(read("attention_factor", rope.attention_factor));
  RETURN_IF_ERROR(read("mscale", rope.mscale));
  RETURN_IF_ERROR(read("mscale_all_dim", rope.mscale_all_dim));
  RETURN_IF_ERROR(read("low_freq_factor", rope.low_freq_factor));
  RETURN_IF_ERROR(read("high_freq_factor", rope.high_freq_factor));
  ASSIGN_OR_RETURN(rope.yarn_truncate, metadata.GetBool(key("truncate"), true));
  ASSIGN_OR_RETURN(rope.original_context,
                   ReadBounded(metadata, key("original_max_position_embeddings"), 1, kMaxContext,
                               rope.original_context));
  return OkStatus();
}

}  // namespace

Result<ops::RopeConfig> ReadHfRope(const Metadata& metadata, int32_t head_dim,
                                   int32_t trained_context) {
  ops::RopeConfig rope;
  rope.head_dim = head_dim;
  rope.original_context = trained_context;
  const bool nested = metadata.Has("rope_parameters.rope_theta");
  const std::string base_key = nested ? "rope_parameters.rope_theta" : "rope_theta";
  ASSIGN_OR_RETURN(const double base, metadata.GetFloat(base_key, 10000.0));
  rope.base = static_cast<float>(base);
  const std::string partial_key = metadata.Has("rope_parameters.partial_rotary_factor")
                                      ? "rope_parameters.partial_rotary_factor"
                                      : "partial_rotary_factor";
  ASSIGN_OR_RETURN(const double part, metadata.GetFloat(partial_key, 1.0));
  if (!(part > 0.0 && part <= 1.0)) {
    return Error(ErrorCode::kDataLoss, "{} is {}, must be in (0, 1]", partial_key, part);
  }
  rope.rotary_dim = static_cast<int32_t>(head_dim * part);
  RETURN_IF_ERROR(ReadScaling(metadata, nested ? "rope_parameters." : "rope_scaling.", rope));
  return rope;
}

namespace {

// Mistral gives one window for all layers. Qwen gives the first windowed layer, newer files a type
// for every layer.
Result<std::vector<int32_t>> ReadWindows(const Metadata& metadata, const ModelConfig& config,
                                         std::string_view architecture, Family family) {
  std::vector<int32_t> windows(static_cast<size_t>(config.num_layers), 0);
  if (!metadata.Has("sliding_window")) return windows;
  const bool mistral = architecture.starts_with("Mistral") || architecture == "mistral";
  const bool gpt_oss = family == Family::kGptOss;
  if (!mistral && family == Family::kLlama) return windows;
  ASSIGN_OR_RETURN(const bool on, metadata.GetBool("use_sliding_window", mistral || gpt_oss));
  if (!on) return windows;
  ASSIGN_OR_RETURN(const int32_t window, ReadBounded(metadata, "sliding_window", 1, kMaxContext));

  if (metadata.Has("layer_types")) {
    ASSIGN_OR_RETURN(const auto types, metadata.GetStringArray("layer_types"));
    windows.assign(types.size(), 0);
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == "sliding_attention") {
        windows[i] = window;
      } else if (types[i] != "full_attention") {
        return Error(ErrorCode::kUnsupported, "layer_types[{}] is '{}'", i, types[i]);
      }
    }
    return windows;
  }
  if (family == Family::kQwen2Moe || family == Family::kQwen3Moe) {
    return Error(ErrorCode::kUnsupported, "use_sliding_window without layer_types");
  }
  for (size_t i = 0; i < windows.size() && gpt_oss; i += 2) windows[i] = window;
  if (gpt_oss) return windows;
  ASSIGN_OR_RETURN(const int32_t first,
                   ReadBounded(metadata, "max_window_layers", 0, kMaxLayers, mistral ? 0 : 28));
  for (size_t i = static_cast<size_t>(mistral ? 0 : first); i < windows.size(); ++i) {
    windows[i] = window;
  }
  return windows;
}

Status RefuseUnsupported(const Metadata& metadata) {
  ASSIGN_OR_RETURN(const std::string_view activation, metadata.GetString("hidden_act", "silu"));
  if (activation != "silu") {
    return Error(ErrorCode::kUnsupported, "hidden_act is '{}'; only 'silu' is implemented",
                 activation);
  }
  return OkStatus();
}

}  // namespace

Result<ModelConfig> ReadHfConfig(const weights::Checkpoint& checkpoint, Family family) {
  const Metadata& metadata = checkpoint.metadata();
  RETURN_IF_ERROR(RefuseUnsupported(metadata));
  ModelConfig config;
  ASSIGN_OR_RETURN(config.hidden_size, ReadBounded(metadata, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_layers, ReadBounded(metadata, "num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.num_heads, ReadBounded(metadata, "num_attention_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   ReadBounded(metadata, "num_key_value_heads", 1, kMaxWidth, config.num_heads));
  const bool qwen2 = family == Family::kQwen2 || family == Family::kQwen2Moe;
  const bool gpt_oss = family == Family::kGptOss;
  const int64_t default_head = family == Family::kQwen3 ? 128
                               : gpt_oss                ? 64
                                         : std::max(1, config.hidden_size / config.num_heads);
  ASSIGN_OR_RETURN(config.head_dim, ReadBounded(metadata, "head_dim", 1, kMaxWidth, default_head));
  ASSIGN_OR_RETURN(config.ffn_size, ReadBounded(metadata, "intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.vocab_size, ReadBounded(metadata, "vocab_size", 1, kMaxVocab));
  ASSIGN_OR_RETURN(config.trained_context,
                   ReadBounded(metadata, "max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(const double eps, metadata.GetFloat("rms_norm_eps", 1e-6));
  config.norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config.rope, ReadHfRope(metadata, config.head_dim, config.trained_context));
  ASSIGN_OR_RETURN(const bool biased, metadata.GetBool("attention_bias", gpt_oss));
  ASSIGN_OR_RETURN(const bool qwen2_bias, metadata.GetBool("qkv_bias", qwen2));
  config.qkv_bias = biased || (qwen2 && qwen2_bias);
  config.output_bias = biased && !qwen2;
  ASSIGN_OR_RETURN(config.mlp_bias, metadata.GetBool("mlp_bias", false));
  config.qk_norm = family == Family::kQwen3 || family == Family::kQwen3Moe;
  config.attention_sinks = gpt_oss;
  ASSIGN_OR_RETURN(config.tied_head, metadata.GetBool("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(config.windows,
                   ReadWindows(metadata, config, checkpoint.architecture(), family));
  // MXFP4 names the experts' tensors, which say themselves how they are stored.
  static constexpr std::string_view kMxfp4[] = {"mxfp4"};
  ASSIGN_OR_RETURN(
      config.fp8_block,
      ReadFp8Block(metadata, gpt_oss ? std::span(kMxfp4) : std::span<const std::string_view>()));
  if (gpt_oss || family == Family::kQwen2Moe || family == Family::kQwen3Moe) {
    ASSIGN_OR_RETURN(config.moe, ReadHfMoe(metadata, config, family));
  }
  return config;
}

}  // namespace hayate::models
