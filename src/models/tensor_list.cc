#include "models/tensor_list.h"

#include "base/error.h"
#include "models/detail/tensor_names.h"

namespace hayate::models {

Result<std::vector<weights::DummyTensor>> ListTensors(const ModelConfig& config, DType dtype) {
  std::vector<weights::DummyTensor> tensors;
  const TensorNames& names = kHfNames;
  const auto vector = [&](std::string name, int64_t n) {
    tensors.push_back({std::move(name), DType::kF32, Shape{n}});
  };
  const auto matrix = [&](std::string name, int64_t n, int64_t k) {
    tensors.push_back({std::move(name), dtype, Shape{n, k}});
  };
  const int64_t h = config.hidden_size, f = config.ffn_size, d = config.head_dim;
  const int64_t q = config.num_heads * d, kv = config.num_kv_heads * d;
  matrix(std::string(names.embedding), config.vocab_size, h);
  vector(std::string(names.final_norm), h);
  if (!config.tied_head) matrix(std::string(names.head), config.vocab_size, h);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const auto linear = [&](std::string_view name, int64_t n, int64_t k, bool biased) {
      matrix(names.Layer(layer, name), n, k);
      if (biased) vector(names.Layer(layer, name, ".bias"), n);
    };
    vector(names.Layer(layer, names.attention_norm), h);
    linear(names.q, q, h, config.qkv_bias);
    linear(names.k, kv, h, config.qkv_bias);
    linear(names.v, kv, h, config.qkv_bias);
    linear(names.output, h, q, config.output_bias);
    if (config.qk_norm) vector(names.Layer(layer, names.q_norm), d);
    if (config.qk_norm) vector(names.Layer(layer, names.k_norm), d);
    vector(names.Layer(layer, names.mlp_norm), h);
    linear(names.gate, f, h, config.mlp_bias);
    linear(names.up, f, h, config.mlp_bias);
    linear(names.down, h, f, config.mlp_bias);
  }
  const int block = Info(dtype).block_elements;
  for (const weights::DummyTensor& tensor : tensors) {
    const int64_t row = tensor.shape[tensor.shape.rank() - 1];
    if (tensor.dtype == dtype && row % block != 0) {
      return Error(ErrorCode::kInvalidArgument,
                   "{}: rows of {} are no multiple of {}'s block of {}", tensor.name, row,
                   Info(dtype).name, block);
    }
  }
  return tensors;
}

}  // namespace hayate::models
