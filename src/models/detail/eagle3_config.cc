#include "models/detail/eagle3_config.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

using weights::Checkpoint;
using weights::Metadata;

constexpr std::string_view kOutputsOf = "eagle_config.eagle_aux_hidden_state_layer_ids";
constexpr std::string_view kInputsOf = "eagle_aux_hidden_state_layer_ids";
constexpr size_t kMaxStates = 16;

Status RefuseOtherForms(const Checkpoint& head, const ModelConfig& layer) {
  const Metadata& metadata = head.metadata();
  if (layer.num_layers != 1) {
    return Error(ErrorCode::kUnsupported, "num_hidden_layers is {}; heads of one layer exist",
                 layer.num_layers);
  }
  for (const std::string_view field : {"norm_before_fc", "fc_norm", "norm_output"}) {
    ASSIGN_OR_RETURN(const bool on, metadata.GetBool(field, false));
    if (on) return Error(ErrorCode::kUnsupported, "{} is true", field);
  }
  ASSIGN_OR_RETURN(const bool states, metadata.GetBool("eagle_config.use_aux_hidden_state", true));
  if (!states) {
    return Error(ErrorCode::kUnsupported,
                 "eagle_config.use_aux_hidden_state is false: a head of EAGLE-1 or 2");
  }
  return OkStatus();
}

}  // namespace

Result<Eagle3Config> ReadEagle3Config(const Checkpoint& head) {
  if (head.format() != weights::CheckpointFormat::kSafetensors) {
    return Error(ErrorCode::kUnsupported, "EAGLE-3 heads come as safetensors with a config.json");
  }
  Eagle3Config config;
  ASSIGN_OR_RETURN(config.layer, ReadHfConfig(head, Family::kLlama));
  config.layer.architecture = head.architecture();
  RETURN_IF_ERROR(RefuseOtherForms(head, config.layer));
  if (config.layer.num_heads % config.layer.num_kv_heads != 0) {
    return Error(ErrorCode::kDataLoss, "{} attention heads are no multiple of {} key-value heads",
                 config.layer.num_heads, config.layer.num_kv_heads);
  }
  ASSIGN_OR_RETURN(config.draft_vocab_size,
                   ReadBounded(head.metadata(), "draft_vocab_size", 1, config.layer.vocab_size,
                               config.layer.vocab_size));
  ASSIGN_OR_RETURN(config.norm_before_residual,
                   head.metadata().GetBool("norm_before_residual", false));
  return config;
}

Result<std::vector<int32_t>> ReadEagle3Layers(const Checkpoint& head, int32_t num_layers) {
  const Metadata& metadata = head.metadata();
  std::vector<int64_t> layers = {2, num_layers / 2, num_layers - 3};
  std::string_view field = "the head's choice";
  if (metadata.Has(kOutputsOf)) {
    field = kOutputsOf;
    ASSIGN_OR_RETURN(layers, metadata.GetIntArray(kOutputsOf));
    for (int64_t& layer : layers) ++layer;
  } else if (metadata.Has(kInputsOf)) {
    field = kInputsOf;
    ASSIGN_OR_RETURN(layers, metadata.GetIntArray(kInputsOf));
  }
  if (layers.empty() || layers.size() > kMaxStates) {
    return Error(ErrorCode::kDataLoss, "{} names {} layers, must be 1 to {}", field, layers.size(),
                 kMaxStates);
  }
  std::vector<int32_t> inputs;
  for (const int64_t layer : layers) {
    if (layer < 0 || layer >= num_layers) {
      return Error(ErrorCode::kDataLoss, "{} wants what enters layer {} of a model of {} layers",
                   field, layer, num_layers);
    }
    inputs.push_back(static_cast<int32_t>(layer));
  }
  return inputs;
}

}  // namespace hayate::models
