#include "models/expert_shape.h"

#include "models/config.h"
#include "models/detail/deepseek_v3_config.h"
#include "models/detail/deepseek_v41_config.h"
#include "models/detail/deepseek_v4_config.h"

namespace hayate::models {
namespace {

template <typename Config>
ExpertShape ShapeOf(const Config& config) {
  return {config.num_layers, config.num_experts, config.experts_per_token};
}

}  // namespace

Result<ExpertShape> ReadExpertShape(const weights::Checkpoint& checkpoint) {
  const std::string& name = checkpoint.architecture();
  if (name == "DeepseekV4ForCausalLM") {
    ASSIGN_OR_RETURN(const DeepseekV4Config config, ReadDeepseekV4Config(checkpoint));
    return ShapeOf(config);
  }
  if (name == "DeepseekV41ForCausalLM") {
    ASSIGN_OR_RETURN(const DeepseekV41Config config, ReadDeepseekV41Config(checkpoint));
    return ShapeOf(config);
  }
  if (IsDeepseekV3(name)) {
    ASSIGN_OR_RETURN(const DeepseekV3Config config, ReadDeepseekV3Config(checkpoint));
    const ops::RouterConfig& router = config.moe.router;
    return ExpertShape{config.num_layers, router.num_experts, router.top_k};
  }
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(checkpoint));
  ExpertShape shape = {.num_layers = config.num_layers};
  if (config.moe) {
    shape.num_experts = config.moe->router.num_experts;
    shape.top_k = config.moe->router.top_k;
  }
  return shape;
}

}  // namespace hayate::models
