#include "models/config.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

constexpr std::pair<std::string_view, Family> kArchitectures[] = {
    {"LlamaForCausalLM", Family::kLlama},
    {"llama", Family::kLlama},
    {"MistralForCausalLM", Family::kLlama},
    {"mistral", Family::kLlama},
    {"Qwen2ForCausalLM", Family::kQwen2},
    {"qwen2", Family::kQwen2},
    {"Qwen3ForCausalLM", Family::kQwen3},
    {"qwen3", Family::kQwen3},
    {"Qwen2MoeForCausalLM", Family::kQwen2Moe},
    {"Qwen3MoeForCausalLM", Family::kQwen3Moe},
    {"qwen2moe", Family::kQwen2Moe},
    {"qwen3moe", Family::kQwen3Moe},
    {"GptOssForCausalLM", Family::kGptOss},
    {"gpt-oss", Family::kGptOss},
};

// What the readers cannot check field by field.
Status CheckConsistent(const ModelConfig& config) {
  if (config.num_heads % config.num_kv_heads != 0) {
    return Error(ErrorCode::kDataLoss, "{} attention heads are no multiple of {} key-value heads",
                 config.num_heads, config.num_kv_heads);
  }
  if (config.windows.size() != static_cast<size_t>(config.num_layers)) {
    return Error(ErrorCode::kDataLoss, "{} layer types for {} layers", config.windows.size(),
                 config.num_layers);
  }
  if (config.moe) {
    const Status router = ops::CheckRouter(config.moe->router);
    if (!router.ok()) return Status(ErrorCode::kDataLoss, router.message());
  }
  // The numbers of the rotation, for any context: max_position plays no part in what is refused.
  const Status rope = ops::ComputeRopeFrequencies(config.rope, config.trained_context).status();
  return rope.ok() ? OkStatus() : Status(ErrorCode::kDataLoss, rope.message());
}

}  // namespace

Result<Family> FamilyOf(std::string_view architecture) {
  for (const auto& [name, family] : kArchitectures) {
    if (name == architecture) return family;
  }
  return Error(ErrorCode::kUnsupported,
               "architecture '{}' has no implementation; known are llama, mistral, qwen2, "
               "qwen3, qwen2-moe, qwen3-moe, gpt-oss, deepseek-v3, deepseek-v3.2, deepseek-v4 and "
               "deepseek-v4.1",
               architecture);
}

Result<int32_t> ReadBounded(const weights::Metadata& metadata, std::string_view key, int64_t low,
                            int64_t high) {
  ASSIGN_OR_RETURN(const int64_t value, metadata.GetInt(key));
  if (value < low || value > high) {
    return Error(ErrorCode::kDataLoss, "{} is {}, must be in [{}, {}]", key, value, low, high);
  }
  return static_cast<int32_t>(value);
}

Result<int32_t> ReadBounded(const weights::Metadata& metadata, std::string_view key, int64_t low,
                            int64_t high, int64_t fallback) {
  if (!metadata.Has(key)) return static_cast<int32_t>(fallback);
  return ReadBounded(metadata, key, low, high);
}

Result<ModelConfig> ReadModelConfig(const weights::Checkpoint& checkpoint) {
  const auto read = [&]() -> Result<ModelConfig> {
    ASSIGN_OR_RETURN(const Family family, FamilyOf(checkpoint.architecture()));
    ASSIGN_OR_RETURN(ModelConfig config, checkpoint.format() == weights::CheckpointFormat::kGguf
                                             ? ReadGgufConfig(checkpoint, family)
                                             : ReadHfConfig(checkpoint, family));
    config.architecture = checkpoint.architecture();
    RETURN_IF_ERROR(CheckConsistent(config));
    ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
    config.eos_ids = special.eos;
    return config;
  };
  Result<ModelConfig> config = read();
  if (!config.ok()) return config.status().Under(checkpoint.path().string());
  return config;
}

}  // namespace hayate::models
