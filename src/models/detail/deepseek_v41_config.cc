#include "models/detail/deepseek_v41_config.h"

#include <algorithm>

#include "base/error.h"
#include "models/detail/config_checks.h"
#include "models/detail/config_readers.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/moe/router.h"

namespace hayate::models {
namespace {

using weights::Metadata;

constexpr int64_t kMaxRatio = 1024;

std::string Key(std::string_view name) { return "text_config." + std::string(name); }

Result<int32_t> Read(const Metadata& metadata, std::string_view name, int64_t low, int64_t high) {
  return ReadBounded(metadata, Key(name), low, high);
}
Result<float> ReadNumber(const Metadata& metadata, std::string_view name, double low, double high) {
  return ReadBoundedFloat(metadata, Key(name), low, high);
}

Status RefuseUnsupported(const Metadata& metadata) {
  RETURN_IF_ERROR(RequireString(metadata, Key("hidden_act"), "silu"));
  RETURN_IF_ERROR(RequireString(metadata, Key("scoring_func"), "sqrtsoftplus"));
  RETURN_IF_ERROR(RequireString(metadata, Key("topk_method"), "noaux_tc"));
  RETURN_IF_ERROR(RequireBool(metadata, Key("norm_topk_prob"), true));
  RETURN_IF_ERROR(RequireBool(metadata, Key("attention_bias"), false));
  RETURN_IF_ERROR(RequireBool(metadata, Key("tie_word_embeddings"), false));
  RETURN_IF_ERROR(RequireBool(metadata, Key("hc_shifted"), true));
  RETURN_IF_ERROR(RequireBool(metadata, Key("use_fp4_sparse_kv"), true));
  RETURN_IF_ERROR(RequireInt(metadata, Key("num_key_value_heads"), 1));
  RETURN_IF_ERROR(RequireInt(metadata, Key("n_shared_experts"), 1));
  RETURN_IF_ERROR(RequireInt(metadata, Key("hc_mult"), ops::kHyperStreams));
  RETURN_IF_ERROR(RequireString(metadata, Key("rope_scaling.type"), "yarn"));
  return RequireString(metadata, "quantization_config.quant_method", "fp8");
}

Status ReadAttention(const Metadata& metadata, DeepseekV41Config& config) {
  ASSIGN_OR_RETURN(config.num_heads, Read(metadata, "num_attention_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.head_dim, Read(metadata, "head_dim", 2, kMaxWidth));
  ASSIGN_OR_RETURN(config.rotary_dim, Read(metadata, "qk_rope_head_dim", 2, config.head_dim));
  ASSIGN_OR_RETURN(config.q_rank, Read(metadata, "q_lora_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.o_rank, Read(metadata, "o_lora_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.o_groups, Read(metadata, "o_groups", 1, config.num_heads));
  ASSIGN_OR_RETURN(config.window, Read(metadata, "sliding_window", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.index_heads, Read(metadata, "index_n_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.index_dim, Read(metadata, "index_head_dim", 2, kMaxWidth));
  ASSIGN_OR_RETURN(config.index_top_k, Read(metadata, "index_topk", 1, kMaxContext));
  if (config.rotary_dim % 2 != 0) {
    return Error(ErrorCode::kDataLoss, "qk_rope_head_dim is {}, must be even", config.rotary_dim);
  }
  if (config.index_dim < config.rotary_dim) {
    return Error(ErrorCode::kDataLoss, "index_head_dim is {}, must be at least {}",
                 config.index_dim, config.rotary_dim);
  }
  if (config.num_heads % config.o_groups != 0) {
    return Error(ErrorCode::kDataLoss, "o_groups is {}, does not divide {} attention heads",
                 config.o_groups, config.num_heads);
  }
  return OkStatus();
}

Status ReadRope(const Metadata& metadata, DeepseekV41Config& config) {
  ASSIGN_OR_RETURN(const float base, ReadNumber(metadata, "rope_theta", 1.0, 1e12));
  config.window_rope = {.head_dim = config.rotary_dim,
                        .rotary_dim = config.rotary_dim,
                        .base = base,
                        .pairing = ops::RopePairing::kInterleaved};
  config.compressed_rope = config.window_rope;
  ops::RopeConfig& rope = config.compressed_rope;
  ASSIGN_OR_RETURN(rope.base, ReadNumber(metadata, "compress_rope_theta", 1.0, 1e12));
  rope.scaling = ops::RopeScaling::kYarn;
  rope.attention_factor = 1.0f;  // the rotation has no amplitude
  ASSIGN_OR_RETURN(rope.factor, ReadNumber(metadata, "rope_scaling.factor", 1.0, 1e6));
  ASSIGN_OR_RETURN(rope.beta_fast, ReadNumber(metadata, "rope_scaling.beta_fast", 0.01, 1e6));
  ASSIGN_OR_RETURN(rope.beta_slow, ReadNumber(metadata, "rope_scaling.beta_slow", 0.01, 1e6));
  ASSIGN_OR_RETURN(rope.original_context,
                   Read(metadata, "rope_scaling.original_max_position_embeddings", 1, kMaxContext));
  return OkStatus();
}

Result<std::vector<int32_t>> ReadLayerIds(const Metadata& metadata, std::string_view name,
                                          int32_t num_layers) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, metadata.GetIntArray(Key(name)));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_layers || (i > 0 && ids[i] <= ids[i - 1])) {
      return Error(ErrorCode::kDataLoss, "{}[{}] is {}; layers ascend and are below {}", name, i,
                   ids[i], num_layers);
    }
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

// The largest source at or below each layer, −1 where there is none.
std::vector<int32_t> LatestOf(const std::vector<int32_t>& sources, int32_t num_layers) {
  std::vector<int32_t> latest(static_cast<size_t>(num_layers), -1);
  for (int32_t layer = 0, last = -1; layer < num_layers; ++layer) {
    if (std::ranges::count(sources, layer) > 0) last = layer;
    latest[static_cast<size_t>(layer)] = last;
  }
  return latest;
}

Status ReadSources(const Metadata& metadata, DeepseekV41Config& config) {
  const int32_t layers = config.num_layers;
  ASSIGN_OR_RETURN(const std::vector<int64_t> ratios, metadata.GetIntArray(Key("compress_ratios")));
  if (ratios.size() < static_cast<size_t>(layers)) {
    return Error(ErrorCode::kDataLoss, "compress_ratios has {} entries for {} layers",
                 ratios.size(), layers);
  }
  ASSIGN_OR_RETURN(const auto kv, ReadLayerIds(metadata, "kv_source_layer_ids", layers));
  ASSIGN_OR_RETURN(const auto index, ReadLayerIds(metadata, "index_source_layer_ids", layers));
  config.kv_sources = LatestOf(kv, layers);
  config.index_sources = LatestOf(index, layers);
  for (int32_t layer = 0; layer < layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    if (ratios[i] < 0 || ratios[i] > kMaxRatio) {
      return Error(ErrorCode::kDataLoss, "compress_ratios[{}] is {}, must be in [0, {}]", i,
                   ratios[i], kMaxRatio);
    }
    config.ratios.push_back(static_cast<int32_t>(ratios[i]));
    const int32_t source = config.kv_sources[i], selection = config.index_sources[i];
    if (ratios[i] == 0) {
      if (source == layer || selection == layer) {
        return Error(ErrorCode::kDataLoss, "layer {} is a source, but its ratio is 0", layer);
      }
      config.kv_sources[i] = config.index_sources[i] = -1;
    } else if (source < 0 || selection < source ||
               config.ratios[static_cast<size_t>(source)] != ratios[i]) {
      return Error(ErrorCode::kDataLoss,
                   "layer {} of ratio {} has no source of entries and of a selection", layer,
                   ratios[i]);
    }
  }
  return OkStatus();
}

Status ReadCandidates(const Metadata& metadata, DeepseekV41Config& config) {
  ASSIGN_OR_RETURN(config.candidate_source,
                   Read(metadata, "candidate_source_layer_id", 0, config.num_layers - 1));
  ASSIGN_OR_RETURN(config.candidate_blocks,
                   Read(metadata, "candidate_topk_blocks", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.candidate_block_size,
                   Read(metadata, "candidate_block_size", 1, kMaxContext));
  const int32_t source = config.candidate_source;
  if (!config.selects(source)) {
    return Error(ErrorCode::kDataLoss, "candidate_source_layer_id is {}, which selects nothing",
                 source);
  }
  for (int32_t layer = source; layer < config.num_layers; ++layer) {
    if (config.selects(layer) && config.kv_source(layer) != config.kv_source(source)) {
      return Error(ErrorCode::kDataLoss, "layer {} selects from other entries than layer {}", layer,
                   source);
    }
  }
  return OkStatus();
}

Status ReadExperts(const Metadata& metadata, DeepseekV41Config& config) {
  ASSIGN_OR_RETURN(config.num_experts, Read(metadata, "n_routed_experts", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.experts_per_token,
                   Read(metadata, "num_experts_per_tok", 1, config.num_experts));
  ASSIGN_OR_RETURN(config.expert_ffn, Read(metadata, "moe_intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.route_scale, ReadNumber(metadata, "routed_scaling_factor", 0.0, 1e6));
  ASSIGN_OR_RETURN(config.swiglu_limit, ReadNumber(metadata, "swiglu_limit", 1e-6, 1e6));
  const Status router = ops::CheckRouter({.score = ops::RouterScore::kSqrtSoftplus,
                                          .num_experts = config.num_experts,
                                          .top_k = config.experts_per_token});
  return router.ok() ? OkStatus() : Status(ErrorCode::kDataLoss, router.message());
}

Status ReadEngrams(const Metadata& metadata, DeepseekV41Config& config) {
  ASSIGN_OR_RETURN(config.engram_layers,
                   ReadLayerIds(metadata, "engram_layer_ids", config.num_layers));
  if (config.engram_layers.empty()) return OkStatus();
  ops::EngramHashConfig hash = {.layers = config.engram_layers};
  ASSIGN_OR_RETURN(hash.ngram, Read(metadata, "engram_max_ngram_size", 2, ops::kMaxNgram));
  ASSIGN_OR_RETURN(hash.heads, Read(metadata, "engram_n_heads", 1, ops::kMaxEngramHeads));
  ASSIGN_OR_RETURN(hash.bucket_size, metadata.GetInt(Key("engram_vocab_size")));
  ASSIGN_OR_RETURN(config.engram_vocab,
                   Read(metadata, "engram_compressed_vocab_size", 1, kMaxVocab));
  hash.compressed_vocab = config.engram_vocab;
  ASSIGN_OR_RETURN(config.engram_width, Read(metadata, "engram_head_dim", 1, kMaxWidth));
  if (config.engram_width % 32 != 0) {
    return Error(ErrorCode::kDataLoss, "engram_head_dim is {}, no multiple of 32",
                 config.engram_width);
  }
  ASSIGN_OR_RETURN(config.engram_padding_id,
                   Read(metadata, "engram_pad_token_id", 0, config.vocab_size - 1));
  Result<std::vector<ops::EngramHash>> hashes = ops::MakeEngramHashes(hash);
  if (!hashes.ok()) return Status(ErrorCode::kDataLoss, hashes.status().message());
  config.engrams = std::move(hashes).value();
  ASSIGN_OR_RETURN(const auto rows, metadata.GetIntArray(Key("engram_num_embeddings")));
  for (size_t i = 0; i < config.engrams.size(); ++i) {
    if (i < rows.size() && rows[i] == config.engrams[i].num_rows) continue;
    return Error(ErrorCode::kDataLoss, "engram_num_embeddings[{}] must be {}", i,
                 config.engrams[i].num_rows);
  }
  return OkStatus();
}

}  // namespace

int DeepseekV41Config::engram_of(int layer) const {
  const auto found = std::ranges::find(engram_layers, layer);
  return found == engram_layers.end() ? -1 : static_cast<int>(found - engram_layers.begin());
}

Result<DeepseekV41Config> ReadDeepseekV41Config(const weights::Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  RETURN_IF_ERROR(RefuseUnsupported(metadata));
  DeepseekV41Config config;
  config.architecture = checkpoint.architecture();
  ASSIGN_OR_RETURN(config.hidden_size, Read(metadata, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.num_layers, Read(metadata, "num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.vocab_size, Read(metadata, "vocab_size", 1, kMaxVocab));
  ASSIGN_OR_RETURN(config.trained_context,
                   Read(metadata, "max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.norm_eps, ReadNumber(metadata, "rms_norm_eps", 0.0, 1.0));
  ASSIGN_OR_RETURN(config.hyper_iterations, Read(metadata, "hc_sinkhorn_iters", 1, 1000));
  ASSIGN_OR_RETURN(config.hyper_eps, ReadNumber(metadata, "hc_eps", 0.0, 1.0));
  RETURN_IF_ERROR(ReadAttention(metadata, config));
  RETURN_IF_ERROR(ReadRope(metadata, config));
  RETURN_IF_ERROR(ReadSources(metadata, config));
  RETURN_IF_ERROR(ReadCandidates(metadata, config));
  RETURN_IF_ERROR(ReadExperts(metadata, config));
  RETURN_IF_ERROR(ReadEngrams(metadata, config));
  ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
  config.eos_ids = special.eos;
  return config;
}

}  // namespace hayate::models
