#include "models/registry.h"

#include "base/error.h"
#include "models/deepseek_v3.h"
#include "models/deepseek_v4.h"
#include "models/deepseek_v41.h"
#include "models/dense_model.h"

namespace hayate::models {
namespace {

constexpr int32_t kMaxPageTokens = 1024;

Status CheckPages(const LoadOptions& options) {
  CHECK(options.device != nullptr);
  CHECK(options.rank >= 0 && options.rank < options.num_ranks)
      << options.rank << " of " << options.num_ranks;
  if (options.page_tokens < 1 || options.page_tokens > kMaxPageTokens) {
    return Error(ErrorCode::kInvalidArgument, "pages of {} tokens, must be 1 to {}",
                 options.page_tokens, kMaxPageTokens);
  }
  return OkStatus();
}

Status CheckCacheType(const LoadOptions& options) {
  const DType kv = options.kv_dtype;
  const DType smallest = options.device->kind() == DeviceKind::kCpu ? DType::kI8 : DType::kF8E4M3;
  if (kv != DType::kF32 && kv != DType::kF16 && kv != DType::kBF16 && kv != smallest) {
    return Error(ErrorCode::kInvalidArgument, "a cache of type {}; F32, F16, BF16 and {} exist",
                 Info(kv).name, Info(smallest).name);
  }
  return OkStatus();
}

Result<std::unique_ptr<Model>> LoadFamily(const weights::Checkpoint& checkpoint,
                                          const LoadOptions& options) {
  if (IsDeepseekV3(checkpoint.architecture())) {
    ASSIGN_OR_RETURN(const DeepseekV3Config config, ReadDeepseekV3Config(checkpoint));
    return LoadDeepseekV3(checkpoint, config, options);
  }
  if (checkpoint.architecture() == "DeepseekV4ForCausalLM") {
    return LoadDeepseekV4(checkpoint, options);
  }
  if (checkpoint.architecture() == "DeepseekV41ForCausalLM") {
    return LoadDeepseekV41(checkpoint, options);
  }
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(checkpoint));
  RETURN_IF_ERROR(CheckCacheType(options));
  return LoadDenseModel(checkpoint, config, options);
}

// NVFP4 has a scale for each 16 weights and one more of the whole matrix. Its checkpoints may say
// so in a file of their own and not in config.json.
Status RefuseNvfp4(const weights::Checkpoint& checkpoint) {
  for (const auto& [name, info] : checkpoint.tensors()) {
    if (!name.ends_with(".weight_scale_2")) continue;
    return Error(ErrorCode::kUnsupported,
                 "{}: NVFP4 weights; of safetensors' weights there are 16-bit ones, FP8 in blocks "
                 "and MXFP4",
                 name);
  }
  return OkStatus();
}

Status CheckDrafts(const Model& model, const LoadOptions& options) {
  if (options.max_drafts <= model.max_drafts()) return OkStatus();
  return Error(ErrorCode::kUnsupported,
               "speculative decoding with {} draft tokens; {} can take back {}", options.max_drafts,
               model.facts().architecture, model.max_drafts());
}

Status CheckWindowReuse(const Model& model, const LoadOptions& options) {
  if (options.window_reuse == WindowReuse::kStored || model.cache_layout().replay_tokens > 0) {
    return OkStatus();
  }
  return Error(ErrorCode::kUnsupported, "replayed windows; {} keeps them with prefixes",
               model.facts().architecture);
}

}  // namespace

Result<std::unique_ptr<Model>> LoadModel(const weights::Checkpoint& checkpoint,
                                         const LoadOptions& options) {
  RETURN_IF_ERROR(CheckPages(options));
  RETURN_IF_ERROR(RefuseNvfp4(checkpoint).Under(checkpoint.path().string()));
  Result<std::unique_ptr<Model>> model = LoadFamily(checkpoint, options);
  // An error says which checkpoint it is about; one of its config does already.
  const std::string path = checkpoint.path().string();
  if (!model.ok() && model.status().message().starts_with(path)) return model;
  if (!model.ok()) return model.status().Under(path);
  RETURN_IF_ERROR(CheckDrafts(**model, options));
  RETURN_IF_ERROR(CheckWindowReuse(**model, options));
  return model;
}

}  // namespace hayate::models
