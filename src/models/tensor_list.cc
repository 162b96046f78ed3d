#include "models/tensor_list.h"

#include <utility>

#include "base/align.h"
#include "base/error.h"
#include "models/detail/deepseek_v3_tensors.h"
#include "models/detail/deepseek_v4_tensors.h"
#include "models/detail/tensor_names.h"

namespace hayate::models {
namespace {

// Collects the tensors of one config.
class Lister {
 public:
  Lister(const ModelConfig& config, DType dtype) : config_(config), dtype_(dtype) {}

  Result<std::vector<weights::DummyTensor>> List() {
    const TensorNames& names = kHfNames;
    const int64_t h = config_.hidden_size, d = config_.head_dim;
    const int64_t q = config_.num_heads * d, kv = config_.num_kv_heads * d;
    Matrix(std::string(names.embedding), config_.vocab_size, h);
    Vector(std::string(names.final_norm), h);
    if (!config_.tied_head) Matrix(std::string(names.head), config_.vocab_size, h);
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      Vector(names.Layer(layer, names.attention_norm), h);
      Linear(names.Layer(layer, names.q, ""), q, h, config_.qkv_bias);
      Linear(names.Layer(layer, names.k, ""), kv, h, config_.qkv_bias);
      Linear(names.Layer(layer, names.v, ""), kv, h, config_.qkv_bias);
      Linear(names.Layer(layer, names.output, ""), h, q, config_.output_bias);
      if (config_.qk_norm) Vector(names.Layer(layer, names.q_norm), d);
      if (config_.qk_norm) Vector(names.Layer(layer, names.k_norm), d);
      if (config_.attention_sinks) Vector(names.Layer(layer, names.sinks, ""), config_.num_heads);
      Vector(names.Layer(layer, names.mlp_norm), h);
      if (config_.is_sparse(layer)) {
        Experts("model.layers." + std::to_string(layer) + ".mlp.");
      } else {
        Linear(names.Layer(layer, names.gate, ""), config_.ffn_size, h, config_.mlp_bias);
        Linear(names.Layer(layer, names.up, ""), config_.ffn_size, h, config_.mlp_bias);
        Linear(names.Layer(layer, names.down, ""), h, config_.ffn_size, config_.mlp_bias);
      }
    }
    RETURN_IF_ERROR(CheckRows());
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, DType dtype, const Shape& shape) {
    tensors_.push_back({std::move(name), dtype, shape});
  }
  void Vector(std::string name, int64_t n) { Add(std::move(name), DType::kF32, {n}); }
  void Matrix(std::string name, int64_t n, int64_t k) { Add(std::move(name), dtype_, {n, k}); }

  // A projection: where the config speaks of FP8 blocks, it is stored so.
  void Linear(const std::string& name, int64_t n, int64_t k, bool biased) {
    const Fp8Block block = config_.fp8_block;
    if (block.rows > 0) {
      Add(name + ".weight", DType::kF8E4M3, {n, k});
      Add(name + ".weight_scale_inv", DType::kF32,
          {CeilDiv<int64_t>(n, block.rows), CeilDiv<int64_t>(k, block.cols)});
    } else {
      Matrix(name + ".weight", n, k);
    }
    if (biased) Vector(name + ".bias", n);
  }

  void Experts(const std::string& mlp) {
    const MoeSettings& moe = *config_.moe;
    const int64_t h = config_.hidden_size, f = moe.expert_size, experts = moe.router.num_experts;
    const std::string gate = mlp + (moe.router_bias ? "router" : "gate");
    Matrix(gate + ".weight", experts, h);
    if (moe.router_bias) Vector(gate + ".bias", experts);
    if (moe.expert_bias) return Mxfp4Experts(mlp + "experts.", experts, h, f);
    for (int64_t e = 0; e < experts; ++e) {
      Glu(mlp + "experts." + std::to_string(e) + ".", h, f);
    }
    if (moe.shared_size > 0) Glu(mlp + "shared_expert.", h, moe.shared_size);
    if (moe.shared_gate) Matrix(mlp + "shared_expert_gate.weight", 1, h);
  }
  void Glu(const std::string& prefix, int64_t h, int64_t f) {
    Linear(prefix + "gate_proj", f, h, false);
    Linear(prefix + "up_proj", f, h, false);
    Linear(prefix + "down_proj", h, f, false);
  }
  // GPT-OSS, as shipped.
  void Mxfp4Experts(const std::string& prefix, int64_t experts, int64_t h, int64_t f) {
    for (const auto& [name, n, k] : {std::tuple{"gate_up_proj", 2 * f, h}, {"down_proj", h, f}}) {
      Add(prefix + name + "_blocks", DType::kU8, {experts, n, k / 32, 16});
      Add(prefix + name + "_scales", DType::kU8, {experts, n, k / 32});
      Add(prefix + name + "_bias", DType::kF32, {experts, n});
    }
  }

  Status CheckRows() const {
    const int block = Info(dtype_).block_elements;
    for (const weights::DummyTensor& tensor : tensors_) {
      const int64_t row = tensor.shape[tensor.shape.rank() - 1];
      if (tensor.dtype == dtype_ && row % block != 0) {
        return Error(ErrorCode::kInvalidArgument,
                     "{}: rows of {} are no multiple of {}'s block of {}", tensor.name, row,
                     Info(dtype_).name, block);
      }
    }
    return OkStatus();
  }

  const ModelConfig& config_;
  const DType dtype_;
  std::vector<weights::DummyTensor> tensors_;
};

}  // namespace

Result<std::vector<weights::DummyTensor>> ListTensors(const ModelConfig& config, DType dtype) {
  return Lister(config, dtype).List();
}

Result<std::vector<weights::DummyTensor>> ListTensors(const weights::Checkpoint& checkpoint,
                                                      DType dtype) {
  if (IsDeepseekV3(checkpoint.architecture())) {
    ASSIGN_OR_RETURN(const DeepseekV3Config config, ReadDeepseekV3Config(checkpoint));
    return ListDeepseekV3Tensors(config, dtype);
  }
  if (checkpoint.architecture() == "DeepseekV4ForCausalLM") {
    ASSIGN_OR_RETURN(const DeepseekV4Config config, ReadDeepseekV4Config(checkpoint));
    ASSIGN_OR_RETURN(const auto drafts, ReadDeclaredDrafts(checkpoint, "", config));
    return ListDeepseekV4Tensors(config, drafts);
  }
  if (checkpoint.architecture() == "DeepseekV41ForCausalLM") {
    ASSIGN_OR_RETURN(const DeepseekV41Config config, ReadDeepseekV41Config(checkpoint));
    ASSIGN_OR_RETURN(const auto drafts, ReadDeclaredDrafts(checkpoint, "text_config.", config));
    return ListDeepseekV41Tensors(config, drafts);
  }
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(checkpoint));
  return ListTensors(config, dtype);
}

}  // namespace hayate::models
