#include "models/detail/deepseek_v3_tensors.h"

#include <string>
#include <utility>

#include "base/align.h"

namespace hayate::models {
namespace {

class Lister {
 public:
  Lister(const DeepseekV3Config& config, DType dtype) : config_(config), dtype_(dtype) {}

  std::vector<weights::DummyTensor> List() {
    const int64_t h = config_.hidden_size;
    Add("model.embed_tokens.weight", dtype_, {config_.vocab_size, h});
    Vector("model.norm.weight", h);
    if (!config_.tied_head) Add("lm_head.weight", dtype_, {config_.vocab_size, h});
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      Vector(prefix + "input_layernorm.weight", h);
      Vector(prefix + "post_attention_layernorm.weight", h);
      Attention(prefix + "self_attn.");
      if (config_.moe.sparse[static_cast<size_t>(layer)]) {
        Experts(prefix + "mlp.");
      } else {
        Glu(prefix + "mlp.", config_.ffn_size);
      }
    }
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, DType dtype, const Shape& shape) {
    tensors_.push_back({std::move(name), dtype, shape});
  }
  void Vector(std::string name, int64_t n) { Add(std::move(name), DType::kF32, {n}); }
  void Linear(const std::string& name, int64_t n, int64_t k) {
    const Fp8Block block = config_.fp8_block;
    if (block.rows == 0) return Add(name + ".weight", dtype_, {n, k});
    Add(name + ".weight", DType::kF8E4M3, {n, k});
    Add(name + ".weight_scale_inv", DType::kF32,
        {CeilDiv<int64_t>(n, block.rows), CeilDiv<int64_t>(k, block.cols)});
  }

  void Attention(const std::string& prefix) {
    const int64_t h = config_.hidden_size, heads = config_.num_heads, rank = config_.q_rank;
    const int64_t q_rows = heads * (config_.nope_dim + config_.rope_dim);
    if (rank > 0) {
      Linear(prefix + "q_a_proj", rank, h);
      Vector(prefix + "q_a_layernorm.weight", rank);
      Linear(prefix + "q_b_proj", q_rows, rank);
    } else {
      Linear(prefix + "q_proj", q_rows, h);
    }
    Linear(prefix + "kv_a_proj_with_mqa", config_.latent_dim + config_.rope_dim, h);
    Vector(prefix + "kv_a_layernorm.weight", config_.latent_dim);
    Linear(prefix + "kv_b_proj", heads * (config_.nope_dim + config_.value_dim),
           config_.latent_dim);
    Linear(prefix + "o_proj", h, heads * config_.value_dim);
    if (!config_.indexer) return;
    const int64_t d = config_.indexer->head_dim, index_heads = config_.indexer->num_heads;
    Linear(prefix + "indexer.wq_b", index_heads * d, rank);
    Linear(prefix + "indexer.wk", d, h);
    Vector(prefix + "indexer.k_norm.weight", d);
    Vector(prefix + "indexer.k_norm.bias", d);
    Add(prefix + "indexer.weights_proj.weight", dtype_, {index_heads, h});
  }

  void Experts(const std::string& mlp) {
    const MoeSettings& moe = config_.moe;
    Add(mlp + "gate.weight", dtype_, {moe.router.num_experts, config_.hidden_size});
    Vector(mlp + "gate.e_score_correction_bias", moe.router.num_experts);
    for (int32_t e = 0; e < moe.router.num_experts; ++e) {
      Glu(mlp + "experts." + std::to_string(e) + ".", moe.expert_size);
    }
    if (moe.shared_size > 0) Glu(mlp + "shared_experts.", moe.shared_size);
  }
  void Glu(const std::string& prefix, int64_t f) {
    Linear(prefix + "gate_proj", f, config_.hidden_size);
    Linear(prefix + "up_proj", f, config_.hidden_size);
    Linear(prefix + "down_proj", config_.hidden_size, f);
  }

  const DeepseekV3Config& config_;
  const DType dtype_;
  std::vector<weights::DummyTensor> tensors_;
};

}  // namespace

std::vector<weights::DummyTensor> ListDeepseekV3Tensors(const DeepseekV3Config& config,
                                                        DType dtype) {
  return Lister(config, dtype).List();
}

}  // namespace hayate::models
