#include "models/detail/deepseek_v4_tensors.h"

#include <string>
#include <utility>

#include "base/align.h"
#include "ops/hyper_connection/hyper_connection.h"

namespace hayate::models {
namespace {

constexpr int32_t kFp4Columns = 32;  // of a row that share a scale

class Lister {
 public:
  explicit Lister(const DeepseekTrunkConfig& config) : config_(config) {}

  int64_t hidden() const { return config_.hidden_size; }
  void Add(std::string name, DType dtype, const Shape& shape) {
    tensors_.push_back({std::move(name), dtype, shape});
  }
  void Bf16(const std::string& name, const Shape& shape) { Add(name, DType::kBF16, shape); }
  void F32(const std::string& name, const Shape& shape) { Add(name, DType::kF32, shape); }
  void Fp8(const std::string& name, int64_t n, int64_t k) {
    Add(name + ".weight", DType::kF8E4M3, {n, k});
    Add(name + ".scale", DType::kF8E8M0,
        {CeilDiv<int64_t>(n, config_.tile), CeilDiv<int64_t>(k, config_.tile)});
  }
  void Fp4(const std::string& name, int64_t n, int64_t k) {
    Add(name + ".weight", DType::kI8, {n, k / 2});
    Add(name + ".scale", DType::kF8E8M0, {n, k / kFp4Columns});
  }
  void Expert(const std::string& name, int64_t n, int64_t k) {
    config_.fp8_experts ? Fp8(name, n, k) : Fp4(name, n, k);
  }
  void Hyper(const std::string& prefix, int64_t outputs, int64_t scales) {
    F32(prefix + "_fn", {outputs, ops::kHyperStreams * hidden()});
    F32(prefix + "_base", {outputs});
    F32(prefix + "_scale", {scales});
  }

  void Ends() {
    Bf16("embed.weight", {config_.vocab_size, hidden()});
    Bf16("norm.weight", {hidden()});
    Bf16("head.weight", {config_.vocab_size, hidden()});
  }

  // A layer without what its family adds; `num_experts` of it.
  void Layer(const std::string& prefix, int32_t num_experts) {
    const int64_t h = hidden(), d = config_.head_dim, heads = config_.num_heads;
    Bf16(prefix + ".attn_norm.weight", {h});
    Bf16(prefix + ".ffn_norm.weight", {h});
    Hyper(prefix + ".hc_attn", ops::kHyperMixes, 3);
    Hyper(prefix + ".hc_ffn", ops::kHyperMixes, 3);
    const std::string attention = prefix + ".attn";
    const int64_t low = int64_t{config_.o_groups} * config_.o_rank;
    F32(attention + ".attn_sink", {heads});
    Fp8(attention + ".wq_a", config_.q_rank, h);
    Bf16(attention + ".q_norm.weight", {config_.q_rank});
    Fp8(attention + ".wq_b", heads * d, config_.q_rank);
    Fp8(attention + ".wkv", d, h);
    Bf16(attention + ".kv_norm.weight", {d});
    Fp8(attention + ".wo_a", low, heads * d / config_.o_groups);
    Fp8(attention + ".wo_b", h, low);
    const std::string ffn = prefix + ".ffn";
    const int64_t f = config_.expert_ffn;
    Bf16(ffn + ".gate.weight", {num_experts, h});
    for (int32_t e = 0; e < num_experts; ++e) {
      const std::string expert = ffn + ".experts." + std::to_string(e);
      Expert(expert + ".w1", f, h);
      Expert(expert + ".w2", h, f);
      Expert(expert + ".w3", f, h);
    }
    Fp8(ffn + ".shared_experts.w1", f, h);
    Fp8(ffn + ".shared_experts.w2", h, f);
    Fp8(ffn + ".shared_experts.w3", f, h);
  }

  void Compressor(const std::string& prefix, int64_t width, int64_t head_dim) {
    Bf16(prefix + ".wkv.weight", {width, hidden()});
    Bf16(prefix + ".wgate.weight", {width, hidden()});
    Bf16(prefix + ".norm.weight", {head_dim});
  }
  void Indexer(const std::string& prefix) {
    Fp8(prefix + ".wq_b", int64_t{config_.index_heads} * config_.index_dim, config_.q_rank);
    Bf16(prefix + ".weights_proj.weight", {config_.index_heads, hidden()});
  }

  // What surrounds DSpark's blocks; the tables' names differ between the families.
  void Dspark(const DeepseekDraftConfig& draft, const char* markov_in, const char* markov_out) {
    const std::string last = "mtp." + std::to_string(draft.num_blocks - 1);
    const Shape table{config_.vocab_size, draft.markov_rank};
    Fp8("mtp.0.main_proj", hidden(), static_cast<int64_t>(draft.targets.size()) * hidden());
    Bf16("mtp.0.main_norm.weight", {hidden()});
    Bf16(last + ".norm.weight", {hidden()});
    Bf16(last + ".markov_head." + markov_in + ".weight", table);
    Bf16(last + ".markov_head." + markov_out + ".weight", table);
    Bf16(last + ".confidence_head.proj.weight", {1, hidden() + draft.markov_rank});
  }

  std::vector<weights::DummyTensor> Take() { return std::move(tensors_); }

 private:
  const DeepseekTrunkConfig& config_;
  std::vector<weights::DummyTensor> tensors_;
};

void ListV4Compressors(const DeepseekV4Config& config, int layer, const std::string& prefix,
                       Lister& list) {
  const int64_t ratio = config.ratio(layer), d = config.head_dim, index = config.index_dim;
  if (ratio == 0) return;
  const int64_t halves = config.has_indexer(layer) ? 2 : 1;
  list.F32(prefix + ".compressor.ape", {ratio, halves * d});
  list.Compressor(prefix + ".compressor", halves * d, d);
  if (!config.has_indexer(layer)) return;
  list.Indexer(prefix + ".indexer");
  list.F32(prefix + ".indexer.compressor.ape", {ratio, 2 * index});
  list.Compressor(prefix + ".indexer.compressor", 2 * index, index);
}

void ListV4Drafts(const DeepseekDraftConfig& draft, int32_t num_experts, Lister& list) {
  for (int32_t block = 0; block < draft.num_blocks; ++block) {
    const std::string prefix = "mtp." + std::to_string(block);
    list.Layer(prefix, num_experts);
    list.F32(prefix + ".ffn.gate.bias", {num_experts});
  }
  if (draft.kind == DraftKind::kNone) return;
  const std::string last = "mtp." + std::to_string(draft.num_blocks - 1);
  list.Hyper(last + ".hc_head", ops::kHyperStreams, 1);
  if (draft.kind == DraftKind::kDspark) return list.Dspark(draft, "markov_w1", "markov_w2");
  list.Fp8("mtp.0.e_proj", list.hidden(), list.hidden());
  list.Fp8("mtp.0.h_proj", list.hidden(), list.hidden());
  for (const char* name : {"enorm", "hnorm", "norm"}) {
    list.Bf16(std::string("mtp.0.") + name + ".weight", {list.hidden()});
  }
}

void ListV41Attention(const DeepseekV41Config& config, int layer, const std::string& prefix,
                      Lister& list) {
  const int64_t d = config.head_dim;
  if (config.makes_entries(layer)) {
    list.Bf16(prefix + ".compressor.wkv.weight", {d, list.hidden()});
    if (config.ratio(layer) > 1) {
      list.Bf16(prefix + ".compressor.wgate.weight", {d, list.hidden()});
    }
    list.Bf16(prefix + ".compressor.norm.weight", {d});
    list.Bf16(prefix + ".indexer.wk.weight", {config.index_dim, d});
    list.Bf16(prefix + ".indexer.k_norm.weight", {config.index_dim});
  }
  if (config.selects(layer)) list.Indexer(prefix + ".indexer");
}

void ListEngram(const DeepseekV41Config& config, int engram, const std::string& prefix,
                Lister& list) {
  const ops::EngramHash& hash = config.engrams[static_cast<size_t>(engram)];
  const int64_t width = config.engram_width, h = list.hidden();
  list.Add(prefix + ".embed.weight", DType::kF8E4M3, {hash.num_rows, width});
  list.Add(prefix + ".embed.scale", DType::kF8E8M0, {hash.num_rows, width / 32});
  list.Fp8(prefix + ".wkv", (ops::kHyperStreams + 1) * h, hash.rows_per_token() * width);
  list.Bf16(prefix + ".q_weight", {ops::kHyperStreams, h});
  list.Bf16(prefix + ".k_weight", {ops::kHyperStreams, h});
}

// Both biases of a gate: of text, and of images.
void ListV41Gate(const std::string& prefix, int32_t num_experts, Lister& list) {
  list.F32(prefix + ".ffn.gate.bias", {num_experts});
  list.F32(prefix + ".ffn.gate.bias_vl", {num_experts});
}

}  // namespace

std::vector<weights::DummyTensor> ListDeepseekV4Tensors(const DeepseekV4Config& config,
                                                        const DeepseekDraftConfig& draft) {
  Lister list(config);
  list.Ends();
  list.Hyper("hc_head", ops::kHyperStreams, 1);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer);
    list.Layer(prefix, config.num_experts);
    ListV4Compressors(config, layer, prefix + ".attn", list);
    if (layer < config.num_hash_layers) {
      list.Add(prefix + ".ffn.gate.tid2eid", DType::kI64,
               {config.vocab_size, config.experts_per_token});
    } else {
      list.F32(prefix + ".ffn.gate.bias", {config.num_experts});
    }
  }
  ListV4Drafts(draft, draft.num_experts, list);
  return list.Take();
}

std::vector<weights::DummyTensor> ListDeepseekV41Tensors(const DeepseekV41Config& config,
                                                         const DeepseekDraftConfig& draft) {
  Lister list(config);
  list.Ends();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer);
    list.Layer(prefix, config.num_experts);
    ListV41Gate(prefix, config.num_experts, list);
    ListV41Attention(config, layer, prefix + ".attn", list);
    const int engram = config.engram_of(layer);
    if (engram >= 0) ListEngram(config, engram, prefix + ".engram", list);
  }
  if (!config.engrams.empty()) list.Add("engram.token_map", DType::kI32, {config.vocab_size});
  for (int32_t block = 0; block < draft.num_blocks; ++block) {
    const std::string prefix = "mtp." + std::to_string(block);
    list.Layer(prefix, draft.num_experts);
    ListV41Gate(prefix, draft.num_experts, list);
  }
  if (draft.kind == DraftKind::kDspark) list.Dspark(draft, "embed", "head");
  return list.Take();
}

}  // namespace hayate::models
