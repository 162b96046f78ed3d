#include "models/detail/deepseek_v41_weights.h"

#include <cstring>

#include "base/error.h"

namespace hayate::models {
namespace {

constexpr auto kExact = ops::MatmulPrecision::kExact;
// What of the vocabulary shares n-grams: the tokenizer's ids by spelling, folded. Made from the
// tokenizer once and kept beside the weights.
constexpr const char* kTokenMap = "engram.token_map";

int64_t BytesOf(const Buffer& buffer) { return static_cast<int64_t>(buffer.size()); }

class Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const DeepseekV41Config& config,
         const LoadOptions& options)
      : tensors_(checkpoint, options, config.tile), config_(config), options_(options) {}

  Result<DeepseekV41Weights> Load() {
    DeepseekV41Weights weights;
    weights.shards = ShardTrunk(config_, options_);
    weights.moe = MoeConfigOf(config_, weights.shards.experts, config_.experts_per_token);
    if (!config_.engrams.empty()) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> map, TokenMap());
      const size_t bytes = map.size() * sizeof(int32_t);
      ASSIGN_OR_RETURN(weights.engram_token_map, Buffer::Allocate(*options_.device, bytes));
      options_.device->Upload(weights.engram_token_map.data(), map.data(), bytes);
      weights.engram_padding = map[static_cast<size_t>(config_.engram_padding_id)];
    }
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, weights.shards, weights.layers[static_cast<size_t>(layer)]));
      tensors_.Report(layer + 1, config_.num_layers + 1);
    }
    RETURN_IF_ERROR(LoadTrunkEnds(tensors_, config_, weights));
    tensors_.Report(config_.num_layers + 1, config_.num_layers + 1);
    return weights;
  }

 private:
  int64_t hidden() const { return config_.hidden_size; }

  Result<Buffer> Vector(const std::string& name, int64_t size) {
    return tensors_.Floats(name, {size});
  }

  Result<std::vector<int32_t>> TokenMap() {
    if (!tensors_.Has(kTokenMap)) {
      return Error(ErrorCode::kUnsupported,
                   "the checkpoint has Engram tables but no '{}': an I32 tensor of {} compressed "
                   "token ids, which tools/engram_token_map.py makes from its tokenizer",
                   kTokenMap, config_.vocab_size);
    }
    ASSIGN_OR_RETURN(const ConstTensorView tensor,
                     tensors_.Tensor(kTokenMap, {config_.vocab_size}));
    if (tensor.dtype != DType::kI32) {
      return Error(ErrorCode::kDataLoss, "tensor '{}' is {}, must be I32", kTokenMap,
                   Info(tensor.dtype).name);
    }
    std::vector<int32_t> map(static_cast<size_t>(config_.vocab_size));
    std::memcpy(map.data(), tensor.data, map.size() * sizeof(int32_t));
    for (size_t id = 0; id < map.size(); ++id) {
      if (map[id] < 0 || map[id] >= config_.engram_vocab) {
        return Error(ErrorCode::kDataLoss, "tensor '{}' maps token {} to {} of {}", kTokenMap, id,
                     map[id], config_.engram_vocab);
      }
    }
    return map;
  }

  Status LoadLayer(int index, const TrunkShards& shards, DeepseekV41Layer& layer) {
    const std::string prefix = "layers." + std::to_string(index);
    layer.index = index;
    RETURN_IF_ERROR(LoadHyperLayer(tensors_, config_, shards, prefix, layer));
    ASSIGN_OR_RETURN(layer.experts.choice_bias,
                     Vector(prefix + ".ffn.gate.bias", config_.num_experts));
    if (config_.makes_entries(index)) {
      ASSIGN_OR_RETURN(layer.source, LoadSource(prefix + ".attn", config_.ratio(index)));
    }
    if (config_.selects(index)) {
      RETURN_IF_ERROR(LoadIndexer(prefix + ".attn.indexer", layer));
    }
    const int engram = config_.engram_of(index);
    if (engram < 0) return OkStatus();
    ASSIGN_OR_RETURN(layer.engram,
                     LoadEngram(prefix + ".engram", config_.engrams[static_cast<size_t>(engram)]));
    return OkStatus();
  }

  Status LoadIndexer(const std::string& prefix, DeepseekV41Layer& layer) {
    ASSIGN_OR_RETURN(
        layer.index_q,
        tensors_.Matrix(prefix + ".wq_b", int64_t{config_.index_heads} * config_.index_dim,
                        config_.q_rank, options_.precision));
    ASSIGN_OR_RETURN(layer.index_weights, tensors_.Matrix(prefix + ".weights_proj",
                                                          config_.index_heads, hidden(), kExact));
    return OkStatus();
  }

  Result<EntrySource> LoadSource(const std::string& prefix, int32_t ratio) {
    const int64_t d = config_.head_dim;
    const std::string compressor = prefix + ".compressor";
    EntrySource source;
    if (ratio > 1) {
      source.compressor = {.ratio = ratio, .head_dim = config_.head_dim};
      ASSIGN_OR_RETURN(
          source.compressor.kv_gate,
          tensors_.Matrix({{compressor + ".wkv", d, {0, d}}, {compressor + ".wgate", d, {0, d}}},
                          hidden(), {0, hidden()}, kExact));
      ASSIGN_OR_RETURN(source.compressor.norm, Vector(compressor + ".norm.weight", d));
    } else {
      ASSIGN_OR_RETURN(source.kv, tensors_.Matrix(compressor + ".wkv", d, hidden(), kExact));
      ASSIGN_OR_RETURN(source.norm, Vector(compressor + ".norm.weight", d));
    }
    ASSIGN_OR_RETURN(source.key,
                     tensors_.Matrix(prefix + ".indexer.wk", config_.index_dim, d, kExact));
    ASSIGN_OR_RETURN(source.key_norm, Vector(prefix + ".indexer.k_norm.weight", config_.index_dim));
    return source;
  }

  // The CPU leaves tables in the file and does not even look through them, for they can be a
  // thousand times larger than what a request reads of them.
  Result<EngramWeights> LoadEngram(const std::string& prefix, const ops::EngramHash& hash) {
    EngramWeights engram;
    const weights::Checkpoint& checkpoint = tensors_.checkpoint();
    const int64_t width = config_.engram_width;
    ASSIGN_OR_RETURN(const ConstTensorView table,
                     checkpoint.Tensor(prefix + ".embed.weight", {hash.num_rows, width}));
    ASSIGN_OR_RETURN(const ConstTensorView scales,
                     checkpoint.Tensor(prefix + ".embed.scale", {hash.num_rows, width / 32}));
    if (table.dtype != DType::kF8E4M3 || scales.dtype != DType::kF8E8M0) {
      return Error(ErrorCode::kDataLoss, "tensor '{}.embed.weight' is {} under {} scales", prefix,
                   Info(table.dtype).name, Info(scales.dtype).name);
    }
    ASSIGN_OR_RETURN(engram.table, PlaceHostTable(*options_.device, table));
    ASSIGN_OR_RETURN(engram.scales, PlaceHostTable(*options_.device, scales));
    ASSIGN_OR_RETURN(engram.hash, ops::PlaceEngramHash(*options_.device, hash));
    ASSIGN_OR_RETURN(engram.kv,
                     tensors_.Matrix(prefix + ".wkv", (ops::kHyperStreams + 1) * hidden(),
                                     hash.rows_per_token() * width, options_.precision));
    const Shape shape{ops::kHyperStreams, hidden()};
    ASSIGN_OR_RETURN(engram.q_weight, tensors_.Floats(prefix + ".q_weight", shape));
    ASSIGN_OR_RETURN(engram.k_weight, tensors_.Floats(prefix + ".k_weight", shape));
    return engram;
  }

  VendorTensors tensors_;
  const DeepseekV41Config& config_;
  const LoadOptions& options_;
};

}  // namespace

int64_t EntrySource::bytes() const {
  return compressor.bytes() + kv.bytes() + BytesOf(norm) + key.bytes() + BytesOf(key_norm);
}

// Of the device: tables are the host's.
int64_t EngramWeights::bytes() const {
  return BytesOf(hash) + kv.bytes() + BytesOf(q_weight) + BytesOf(k_weight);
}

int64_t DeepseekV41Layer::bytes() const {
  return HyperLayer::bytes() + (source ? source->bytes() : 0) + index_q.bytes() +
         index_weights.bytes() + (engram ? engram->bytes() : 0);
}

int64_t DeepseekV41Weights::bytes() const {
  int64_t total = TrunkWeights::bytes() + BytesOf(engram_token_map);
  for (const DeepseekV41Layer& layer : layers) total += layer.bytes();
  return total;
}

Result<DeepseekV41Weights> LoadDeepseekV41Weights(const weights::Checkpoint& checkpoint,
                                                  const DeepseekV41Config& config,
                                                  const LoadOptions& options) {
  return Loader(checkpoint, config, options).Load();
}

}  // namespace hayate::models
