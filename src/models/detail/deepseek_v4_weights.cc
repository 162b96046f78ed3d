#include "models/detail/deepseek_v4_weights.h"

#include <cstring>

#include "base/error.h"

namespace hayate::models {
namespace {

constexpr int32_t kTile = 128;     // weights of an E4M3 matrix share a scale per tile
constexpr int64_t kHeadRows = 16;  // rows of the head go in whole tiles of the product
constexpr auto kExact = ops::MatmulPrecision::kExact;

class Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const DeepseekV4Config& config,
         const LoadOptions& options)
      : tensors_(checkpoint, options, kTile), config_(config), options_(options) {}

  Result<DeepseekV4Weights> Load() {
    DeepseekV4Weights weights;
    weights.groups = SplitGroups(OutputShape(), options_);
    weights.vocab = SplitUnits(config_.vocab_size, kHeadRows, options_.rank, options_.num_ranks);
    experts_ = SplitExperts(config_.hidden_size, config_.num_experts, config_.expert_ffn, options_);
    weights.moe = MoeOf();
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, weights.groups, weights.layers[static_cast<size_t>(layer)]));
      tensors_.Report(layer + 1, config_.num_layers + 1);
    }
    RETURN_IF_ERROR(LoadEnds(weights));
    tensors_.Report(config_.num_layers + 1, config_.num_layers + 1);
    return weights;
  }

 private:
  int64_t hidden() const { return config_.hidden_size; }
  GroupedOutputShape OutputShape() const { return OutputShapeOf(config_); }

  Result<Buffer> Vector(const std::string& name, int64_t size) {
    return tensors_.Floats(name, {size});
  }
  // Without shards, in the fast mode's precision or exactly.
  Result<Linear> Whole(const std::string& name, int64_t n, int64_t k,
                       ops::MatmulPrecision precision) {
    return tensors_.Matrix(name, n, k, precision);
  }

  Result<HyperWeights> Hyper(const std::string& prefix, int64_t outputs, int64_t scales) {
    return LoadHyper(tensors_, prefix, outputs, scales, hidden());
  }

  Result<LatentCompressor> Compressor(const std::string& prefix, int32_t ratio, int32_t head_dim) {
    LatentCompressor compressor = {
        .ratio = ratio, .head_dim = head_dim, .overlaps = ratio == DeepseekV4Config::kOverlapRatio};
    const int64_t width = compressor.width();
    ASSIGN_OR_RETURN(compressor.kv_gate, tensors_.Matrix({{prefix + ".wkv", width, {0, width}},
                                                          {prefix + ".wgate", width, {0, width}}},
                                                         hidden(), {0, hidden()}, kExact));
    ASSIGN_OR_RETURN(compressor.ape, tensors_.Floats(prefix + ".ape", {ratio, width}));
    ASSIGN_OR_RETURN(compressor.norm, Vector(prefix + ".norm.weight", head_dim));
    return compressor;
  }

  Status LoadLayer(int index, Range groups, DeepseekV4Layer& layer) {
    const std::string prefix = "layers." + std::to_string(index);
    ASSIGN_OR_RETURN(layer.attention_norm, Vector(prefix + ".attn_norm.weight", hidden()));
    ASSIGN_OR_RETURN(layer.ffn_norm, Vector(prefix + ".ffn_norm.weight", hidden()));
    ASSIGN_OR_RETURN(layer.attention_hyper, Hyper(prefix + ".hc_attn", ops::kHyperMixes, 3));
    ASSIGN_OR_RETURN(layer.ffn_hyper, Hyper(prefix + ".hc_ffn", ops::kHyperMixes, 3));
    RETURN_IF_ERROR(LoadAttention(index, groups, layer.attention));
    return LoadMixture(index, prefix + ".ffn", layer.experts);
  }

  Status LoadAttention(int index, Range groups, DeepseekV4Attention& layer) {
    const std::string prefix = "layers." + std::to_string(index) + ".attn";
    const ops::MatmulPrecision precision = options_.precision;
    const int64_t d = config_.head_dim, heads = config_.num_heads;
    const int64_t group_heads = heads / config_.o_groups, group_width = group_heads * d;
    ASSIGN_OR_RETURN(layer.q_down, Whole(prefix + ".wq_a", config_.q_rank, hidden(), precision));
    ASSIGN_OR_RETURN(layer.q_norm, Vector(prefix + ".q_norm.weight", config_.q_rank));
    const Range rows = {groups.begin * group_width, groups.end * group_width};
    ASSIGN_OR_RETURN(layer.q_up, tensors_.Matrix({{prefix + ".wq_b", heads * d, rows}},
                                                 config_.q_rank, {0, config_.q_rank}, precision));
    ASSIGN_OR_RETURN(layer.kv, Whole(prefix + ".wkv", d, hidden(), precision));
    ASSIGN_OR_RETURN(layer.kv_norm, Vector(prefix + ".kv_norm.weight", d));
    ASSIGN_OR_RETURN(layer.sinks,
                     tensors_.Floats(prefix + ".attn_sink", {heads},
                                     {groups.begin * group_heads, groups.end * group_heads}));
    ASSIGN_OR_RETURN(layer.output, LoadGroupedOutput(tensors_, prefix, OutputShape(), groups));
    return LoadCompressors(index, prefix, layer);
  }

  Status LoadCompressors(int index, const std::string& prefix, DeepseekV4Attention& layer) {
    const int32_t ratio = config_.ratio(index);
    if (ratio == 0) return OkStatus();
    ASSIGN_OR_RETURN(layer.compressor, Compressor(prefix + ".compressor", ratio, config_.head_dim));
    if (!config_.has_indexer(index)) return OkStatus();
    ASSIGN_OR_RETURN(layer.index_compressor,
                     Compressor(prefix + ".indexer.compressor", ratio, config_.index_dim));
    ASSIGN_OR_RETURN(layer.index_q, Whole(prefix + ".indexer.wq_b",
                                          int64_t{config_.index_heads} * config_.index_dim,
                                          config_.q_rank, options_.precision));
    ASSIGN_OR_RETURN(layer.index_weights, Whole(prefix + ".indexer.weights_proj",
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
    ASSIGN_OR_RETURN(
        Buffer buffer,
        Buffer::Allocate(*options_.device, static_cast<size_t>(rows * k) * sizeof(int32_t)));
    auto* out = reinterpret_cast<int32_t*>(buffer.data());
    for (int64_t i = 0; i < rows * k; ++i) {
      int64_t expert;
      std::memcpy(&expert, table.data + i * 8, sizeof(expert));
      if (expert < 0 || expert >= config_.num_experts) {
        return Error(ErrorCode::kDataLoss, "tensor '{}' sends token {} to expert {} of {}", name,
                     i / k, expert, config_.num_experts);
      }
      out[i] = static_cast<int32_t>(expert);
    }
    return buffer;
  }

  ops::MoeConfig MoeOf() const {
    return {.router = {.score = ops::RouterScore::kSqrtSoftplus,
                       .num_experts = config_.num_experts,
                       .top_k = config_.experts_per_token,
                       .renormalise = true,
                       .scale = config_.route_scale},
            .form = {.limit = config_.swiglu_limit},
            .place = ops::RoutingWeightPlace::kBeforeDown,
            .hidden_size = config_.hidden_size,
            .expert_size = config_.expert_ffn,
            .shared_size = static_cast<int32_t>(experts_.shared.size())};
  }

  Status LoadMixture(int index, const std::string& prefix, ops::MoeWeights& layer) {
    RETURN_IF_ERROR(LoadExperts(tensors_, prefix, experts_, layer));
    if (index < config_.num_hash_layers) {
      ASSIGN_OR_RETURN(layer.listed, TokenExperts(prefix + ".gate.tid2eid"));
    } else {
      ASSIGN_OR_RETURN(layer.choice_bias, Vector(prefix + ".gate.bias", config_.num_experts));
    }
    return OkStatus();
  }

  Status LoadEnds(DeepseekV4Weights& weights) {
    ASSIGN_OR_RETURN(weights.embedding,
                     tensors_.Tensor("embed.weight", {config_.vocab_size, hidden()}));
    ASSIGN_OR_RETURN(weights.head_hyper, Hyper("hc_head", ops::kHyperStreams, 1));
    ASSIGN_OR_RETURN(weights.final_norm, Vector("norm.weight", hidden()));
    ASSIGN_OR_RETURN(weights.head, tensors_.Matrix({{"head", config_.vocab_size, weights.vocab}},
                                                   hidden(), {0, hidden()}, options_.precision));
    return OkStatus();
  }

  VendorTensors tensors_;
  const DeepseekV4Config& config_;
  const LoadOptions& options_;
  ExpertsShape experts_;
};

int64_t BytesOf(const Buffer& buffer) { return static_cast<int64_t>(buffer.size()); }

int64_t BytesOf(const DeepseekV4Attention& layer) {
  int64_t total = layer.q_down.bytes() + BytesOf(layer.q_norm) + layer.q_up.bytes() +
                  layer.kv.bytes() + BytesOf(layer.kv_norm) + BytesOf(layer.sinks) +
                  layer.output.bytes() + layer.index_q.bytes() + layer.index_weights.bytes();
  if (layer.compressor) total += layer.compressor->bytes();
  if (layer.index_compressor) total += layer.index_compressor->bytes();
  return total;
}

}  // namespace

int64_t DeepseekV4Weights::bytes() const {
  int64_t total = head_hyper.bytes() + BytesOf(final_norm) + head.bytes();
  for (const DeepseekV4Layer& layer : layers) {
    total += BytesOf(layer.attention_norm) + BytesOf(layer.ffn_norm) +
             layer.attention_hyper.bytes() + layer.ffn_hyper.bytes() + BytesOf(layer.attention) +
             layer.experts.bytes();
  }
  return total;
}

GroupedOutputShape OutputShapeOf(const DeepseekV4Config& config) {
  return {.hidden_size = config.hidden_size,
          .groups = config.o_groups,
          .group_width = int64_t{config.num_heads} / config.o_groups * config.head_dim,
          .o_rank = config.o_rank};
}

Result<DeepseekV4Weights> LoadDeepseekV4Weights(const weights::Checkpoint& checkpoint,
                                                const DeepseekV4Config& config,
                                                const LoadOptions& options) {
  return Loader(checkpoint, config, options).Load();
}

}  // namespace hayate::models
