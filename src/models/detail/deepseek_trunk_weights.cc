#include "models/detail/deepseek_trunk_weights.h"

namespace hayate::models {
namespace {

constexpr int64_t kHeadRows = 16;  // rows of the head go in whole tiles of the product

int64_t BytesOf(const Buffer& buffer) { return static_cast<int64_t>(buffer.size()); }

Status LoadAttention(VendorTensors& tensors, const DeepseekTrunkConfig& config, Range groups,
                     const std::string& prefix, WindowAttention& layer) {
  const ops::MatmulPrecision precision = tensors.options().precision;
  const int64_t d = config.head_dim, heads = config.num_heads, rank = config.q_rank;
  const int64_t h = config.hidden_size;
  const Range own = {groups.begin * config.group_heads(), groups.end * config.group_heads()};
  ASSIGN_OR_RETURN(layer.q_down, tensors.Matrix(prefix + ".wq_a", rank, h, precision));
  ASSIGN_OR_RETURN(layer.q_norm, tensors.Floats(prefix + ".q_norm.weight", {rank}));
  ASSIGN_OR_RETURN(layer.q_up,
                   tensors.Matrix({{prefix + ".wq_b", heads * d, {own.begin * d, own.end * d}}},
                                  rank, {0, rank}, precision));
  ASSIGN_OR_RETURN(layer.kv, tensors.Matrix(prefix + ".wkv", d, h, precision));
  ASSIGN_OR_RETURN(layer.kv_norm, tensors.Floats(prefix + ".kv_norm.weight", {d}));
  ASSIGN_OR_RETURN(layer.sinks, tensors.Floats(prefix + ".attn_sink", {heads}, own));
  ASSIGN_OR_RETURN(layer.output, LoadGroupedOutput(tensors, prefix, OutputShapeOf(config), groups));
  return OkStatus();
}

}  // namespace

int64_t WindowAttention::bytes() const {
  return q_down.bytes() + BytesOf(q_norm) + q_up.bytes() + kv.bytes() + BytesOf(kv_norm) +
         BytesOf(sinks) + output.bytes();
}

int64_t HyperLayer::bytes() const {
  return BytesOf(attention_norm) + BytesOf(ffn_norm) + attention_hyper.bytes() + ffn_hyper.bytes() +
         attention.bytes() + experts.bytes();
}

int64_t TrunkWeights::bytes() const { return BytesOf(final_norm) + head.bytes(); }

TrunkShards ShardTrunk(const DeepseekTrunkConfig& config, const LoadOptions& options) {
  return {
      .groups = SplitGroups(OutputShapeOf(config), options),
      .vocab = SplitUnits(config.vocab_size, kHeadRows, options.rank, options.num_ranks),
      .experts = SplitExperts(config.hidden_size, config.num_experts, config.expert_ffn, options)};
}

GroupedOutputShape OutputShapeOf(const DeepseekTrunkConfig& config) {
  return {.hidden_size = config.hidden_size,
          .groups = config.o_groups,
          .group_width = int64_t{config.group_heads()} * config.head_dim,
          .o_rank = config.o_rank};
}

ops::MoeConfig MoeConfigOf(const DeepseekTrunkConfig& config, const ExpertsShape& experts,
                           int32_t experts_per_token) {
  return {.router = {.score = ops::RouterScore::kSqrtSoftplus,
                     .num_experts = experts.num_experts,
                     .top_k = experts_per_token,
                     .renormalise = true,
                     .sum_epsilon = config.route_epsilon,
                     .scale = config.route_scale},
          .form = {.limit = config.swiglu_limit},
          .place = ops::RoutingWeightPlace::kBeforeDown,
          .hidden_size = config.hidden_size,
          .expert_size = config.expert_ffn,
          .shared_size = static_cast<int32_t>(experts.shared.size())};
}

Status LoadHyperLayer(VendorTensors& tensors, const DeepseekTrunkConfig& config,
                      const TrunkShards& shards, const std::string& prefix, HyperLayer& layer) {
  const int64_t h = config.hidden_size;
  ASSIGN_OR_RETURN(layer.attention_norm, tensors.Floats(prefix + ".attn_norm.weight", {h}));
  ASSIGN_OR_RETURN(layer.ffn_norm, tensors.Floats(prefix + ".ffn_norm.weight", {h}));
  ASSIGN_OR_RETURN(layer.attention_hyper,
                   LoadHyper(tensors, prefix + ".hc_attn", ops::kHyperMixes, 3, h));
  ASSIGN_OR_RETURN(layer.ffn_hyper, LoadHyper(tensors, prefix + ".hc_ffn", ops::kHyperMixes, 3, h));
  RETURN_IF_ERROR(LoadAttention(tensors, config, shards.groups, prefix + ".attn", layer.attention));
  return LoadExperts(tensors, prefix + ".ffn", shards.experts, layer.index, layer.experts);
}

Status LoadTrunkEnds(VendorTensors& tensors, const DeepseekTrunkConfig& config,
                     TrunkWeights& weights) {
  const int64_t h = config.hidden_size;
  ASSIGN_OR_RETURN(const ConstTensorView embedding,
                   tensors.Tensor("embed.weight", {config.vocab_size, h}));
  ASSIGN_OR_RETURN(weights.embedding, PlaceTable(*tensors.options().device, embedding));
  ASSIGN_OR_RETURN(weights.final_norm, tensors.Floats("norm.weight", {h}));
  ASSIGN_OR_RETURN(weights.head, tensors.Matrix({{"head", config.vocab_size, weights.shards.vocab}},
                                                h, {0, h}, tensors.options().precision));
  return OkStatus();
}

}  // namespace hayate::models
