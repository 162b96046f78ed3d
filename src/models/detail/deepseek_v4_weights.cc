#include "models/detail/deepseek_v4_weights.h"

#include <cstring>
#include <vector>

#include "base/error.h"

namespace hayate::models {
namespace {

constexpr auto kExact = ops::MatmulPrecision::kExact;

class Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const DeepseekV4Config& config,
         const LoadOptions& options)
      : tensors_(checkpoint, options, config.tile), config_(config), options_(options) {}

  Result<DeepseekV4Weights> Load() {
    DeepseekV4Weights weights;
    weights.shards = ShardTrunk(config_, options_);
    weights.moe = MoeConfigOf(config_, weights.shards.experts, config_.experts_per_token);
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, weights.shards, weights.layers[static_cast<size_t>(layer)]));
      tensors_.Report(layer + 1, config_.num_layers + 1);
    }
    RETURN_IF_ERROR(LoadTrunkEnds(tensors_, config_, weights));
    ASSIGN_OR_RETURN(weights.head_hyper,
                     LoadHyper(tensors_, "hc_head", ops::kHyperStreams, 1, hidden()));
    tensors_.Report(config_.num_layers + 1, config_.num_layers + 1);
    return weights;
  }

 private:
  int64_t hidden() const { return config_.hidden_size; }
  Result<LatentCompressor> Compressor(const std::string& prefix, int32_t ratio, int32_t head_dim) {
    LatentCompressor compressor = {
        .ratio = ratio, .head_dim = head_dim, .overlaps = ratio == DeepseekV4Config::kOverlapRatio};
    const int64_t width = compressor.width();
    ASSIGN_OR_RETURN(compressor.kv_gate, tensors_.Matrix({{prefix + ".wkv", width, {0, width}},
                                                          {prefix + ".wgate", width, {0, width}}},
                                                         hidden(), {0, hidden()}, kExact));
    ASSIGN_OR_RETURN(compressor.ape, tensors_.Floats(prefix + ".ape", {ratio, width}));
    ASSIGN_OR_RETURN(compressor.norm, tensors_.Floats(prefix + ".norm.weight", {head_dim}));
    return compressor;
  }

  Status LoadLayer(int index, const TrunkShards& shards, DeepseekV4Layer& layer) {
    const std::string prefix = "layers." + std::to_string(index);
    layer.index = index;
    RETURN_IF_ERROR(LoadHyperLayer(tensors_, config_, shards, prefix, layer));
    RETURN_IF_ERROR(LoadCompressors(index, prefix + ".attn", layer));
    if (index < config_.num_hash_layers) {
      ASSIGN_OR_RETURN(layer.experts.listed, TokenExperts(prefix + ".ffn.gate.tid2eid"));
    } else {
      ASSIGN_OR_RETURN(layer.experts.choice_bias,
                       tensors_.Floats(prefix + ".ffn.gate.bias", {config_.num_experts}));
    }
    return OkStatus();
  }

  Status LoadCompressors(int index, const std::string& prefix, DeepseekV4Layer& layer) {
    const int32_t ratio = config_.ratio(index);
    if (ratio == 0) return OkStatus();
    ASSIGN_OR_RETURN(layer.compressor, Compressor(prefix + ".compressor", ratio, config_.head_dim));
    if (!config_.has_indexer(index)) return OkStatus();
    ASSIGN_OR_RETURN(layer.index_compressor,
                     Compressor(prefix + ".indexer.compressor", ratio, config_.index_dim));
    ASSIGN_OR_RETURN(
        layer.index_q,
        tensors_.Matrix(prefix + ".indexer.wq_b", int64_t{config_.index_heads} * config_.index_dim,
                        config_.q_rank, options_.precision));
    ASSIGN_OR_RETURN(layer.index_weights, tensors_.Matrix(prefix + ".indexer.weights_proj",
                                                          config_.index_heads, hidden(), kExact));
    return OkStatus();
  }

  // The experts that every token id goes to, narrowed to 32 bits.
  Result<Buffer> TokenExperts(const std::string& name) {
    const int64_t rows = config_.vocab_size, k = config_.experts_per_token;
    ASSIGN_OR_RETURN(const ConstTensorView table, tensors_.Tensor(name, {rows, k}));
    if (table.dtype != DType::kI64) {
      return Error(ErrorCode::kDataLoss, "tensor '{}' is {}, must be I64", name,
                   Info(table.dtype).name);
    }
    std::vector<int32_t> experts;
    experts.reserve(static_cast<size_t>(rows * k));
    for (int64_t i = 0; i < rows * k; ++i) {
      int64_t expert;
      std::memcpy(&expert, table.data + i * 8, sizeof(expert));
      if (expert < 0 || expert >= config_.num_experts) {
        return Error(ErrorCode::kDataLoss, "tensor '{}' sends token {} to expert {} of {}", name,
                     i / k, expert, config_.num_experts);
      }
      experts.push_back(static_cast<int32_t>(expert));
    }
    ASSIGN_OR_RETURN(Buffer buffer,
                     Buffer::Allocate(*options_.device, experts.size() * sizeof(int32_t)));
    options_.device->Upload(buffer.data(), experts.data(), buffer.size());
    return buffer;
  }

  VendorTensors tensors_;
  const DeepseekV4Config& config_;
  const LoadOptions& options_;
};

}  // namespace

int64_t DeepseekV4Layer::bytes() const {
  return HyperLayer::bytes() + (compressor ? compressor->bytes() : 0) +
         (index_compressor ? index_compressor->bytes() : 0) + index_q.bytes() +
         index_weights.bytes();
}

int64_t DeepseekV4Weights::bytes() const {
  int64_t total = TrunkWeights::bytes() + head_hyper.bytes();
  for (const DeepseekV4Layer& layer : layers) total += layer.bytes();
  return total;
}

Result<DeepseekV4Weights> LoadDeepseekV4Weights(const weights::Checkpoint& checkpoint,
                                                const DeepseekV4Config& config,
                                                const LoadOptions& options) {
  return Loader(checkpoint, config, options).Load();
}

}  // namespace hayate::models
