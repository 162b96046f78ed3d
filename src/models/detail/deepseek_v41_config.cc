#include "models/detail/deepseek_v41_config.h"

#include <algorithm>

#include "base/error.h"
#include "models/detail/config_checks.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

using weights::Metadata;

constexpr const char* kPrefix = "text_config.";

std::string Key(std::string_view name) { return kPrefix + std::string(name); }

Result<int32_t> Read(const Metadata& metadata, std::string_view name, int64_t low, int64_t high) {
  return ReadBounded(metadata, Key(name), low, high);
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
  ASSIGN_OR_RETURN(config.ratios, ReadCompressRatios(metadata, kPrefix, layers));
  ASSIGN_OR_RETURN(const auto kv, ReadLayerIds(metadata, "kv_source_layer_ids", layers));
  ASSIGN_OR_RETURN(const auto index, ReadLayerIds(metadata, "index_source_layer_ids", layers));
  if (metadata.Has(Key("index_k_source_layer_ids"))) {
    ASSIGN_OR_RETURN(const auto keys, ReadLayerIds(metadata, "index_k_source_layer_ids", layers));
    if (keys != kv) {
      return Error(ErrorCode::kUnsupported,
                   "index_k_source_layer_ids differ from kv_source_layer_ids; only sources that "
                   "make their own index keys are implemented");
    }
  }
  config.kv_sources = LatestOf(kv, layers);
  config.index_sources = LatestOf(index, layers);
  for (int32_t layer = 0; layer < layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const int32_t source = config.kv_sources[i], selection = config.index_sources[i];
    const int32_t ratio = config.ratios[i];
    if (ratio == 0) {
      if (source == layer || selection == layer) {
        return Error(ErrorCode::kDataLoss, "layer {} is a source, but its ratio is 0", layer);
      }
      config.kv_sources[i] = config.index_sources[i] = -1;
    } else if (source < 0 || selection < source || config.ratio(source) != ratio) {
      return Error(ErrorCode::kDataLoss,
                   "layer {} of ratio {} has no source of entries and of a selection", layer,
                   ratio);
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

Result<DeepseekV41Config> ReadAll(const weights::Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  for (const char* flag : {"hc_shifted", "use_fp4_sparse_kv", "dspark_target_attn_input"}) {
    RETURN_IF_ERROR(RequireBool(metadata, Key(flag), true));
  }
  DeepseekV41Config config;
  config.stream_entry = StreamEntry::kEarlier;
  config.route_epsilon = 1e-20f;
  config.tile = 32;
  RETURN_IF_ERROR(ReadTrunkConfig(checkpoint, kPrefix, config));
  RETURN_IF_ERROR(ReadSources(metadata, config));
  RETURN_IF_ERROR(ReadCandidates(metadata, config));
  RETURN_IF_ERROR(ReadEngrams(metadata, config));
  return config;
}

}  // namespace

int DeepseekV41Config::engram_of(int layer) const {
  const auto found = std::ranges::find(engram_layers, layer);
  return found == engram_layers.end() ? -1 : static_cast<int>(found - engram_layers.begin());
}

Result<DeepseekV41Config> ReadDeepseekV41Config(const weights::Checkpoint& checkpoint) {
  Result<DeepseekV41Config> config = ReadAll(checkpoint);
  if (!config.ok()) return config.status().Under(checkpoint.path().string());
  return config;
}

}  // namespace hayate::models
