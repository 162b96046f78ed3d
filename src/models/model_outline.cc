#include "models/model_outline.h"

#include "base/align.h"
#include "models/config.h"
#include "models/detail/deepseek_v3_cache.h"
#include "models/detail/deepseek_v41_cache.h"
#include "models/detail/deepseek_v4_cache.h"
#include "models/detail/dense_cache.h"

namespace hayate::models {
namespace {

constexpr int32_t kPageTokens = 128;

LoadOptions OptionsFor(DType kv_dtype) {
  return {.kv_dtype = kv_dtype, .page_tokens = kPageTokens};
}

template <typename Config>
ModelOutline OutlineOf(const Config& config) {
  return {.hidden_size = config.hidden_size,
          .num_layers = config.num_layers,
          .vocab_size = config.vocab_size,
          .trained_context = config.trained_context};
}

int64_t PerToken(const CacheLayout& layout, const CacheGroup& group) {
  return group.page_bytes / layout.page_tokens;
}

CacheUse UseOf(const CacheLayout& layout, DType dtype) {
  CacheUse use = {.dtype = dtype};
  for (const CacheGroup& group : layout.groups) {
    switch (group.kind) {
      case CacheKind::kFull:
      case CacheKind::kCompressed:
        use.bytes_per_token += PerToken(layout, group);
        break;
      case CacheKind::kWindow:
        use.bytes_per_sequence +=
            CeilDiv<int64_t>(group.window, layout.page_tokens) * group.page_bytes;
        break;
      case CacheKind::kState:
        use.bytes_per_sequence += group.page_bytes;
        break;
    }
    use.full_attention_bytes_per_token += PerToken(layout, group);
  }
  return use;
}

// Layers of these families keep a window's row of a token, whatever else they keep.
CacheUse UseOfTrunk(const DeepseekTrunkCache& cache, DType dtype) {
  const CacheLayout& layout = cache.layout();
  CacheUse use = UseOf(layout, dtype);
  use.full_attention_bytes_per_token =
      PerToken(layout, layout.groups[static_cast<size_t>(cache.window_group())]);
  return use;
}

// Heads of tiny models are too narrow for packed rows: such a type is left out.
template <typename Plan>
void AddLatentCaches(ModelOutline& outline, Plan plan) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    Result<CacheUse> use = plan(OptionsFor(dtype));
    if (use.ok()) outline.caches.push_back(*use);
  }
}

template <typename Cache, typename Config>
ModelOutline TrunkOutline(const Config& config) {
  ModelOutline outline = OutlineOf(config);
  AddLatentCaches(outline, [&](const LoadOptions& options) -> Result<CacheUse> {
    ASSIGN_OR_RETURN(const Cache cache, Cache::Plan(config, options));
    return UseOfTrunk(cache, options.kv_dtype);
  });
  return outline;
}

ModelOutline V3Outline(const DeepseekV3Config& config) {
  ModelOutline outline = OutlineOf(config);
  AddLatentCaches(outline, [&](const LoadOptions& options) -> Result<CacheUse> {
    ASSIGN_OR_RETURN(const auto cache, DeepseekV3Cache::Plan(config, options, config.num_layers));
    return UseOf(cache.layout(), options.kv_dtype);
  });
  return outline;
}

Result<ModelOutline> DenseOutline(const weights::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(checkpoint));
  ModelOutline outline = OutlineOf(config);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8}) {
    ASSIGN_OR_RETURN(const auto cache, DenseCache::Plan(checkpoint, config, OptionsFor(dtype)));
    outline.caches.push_back(UseOf(cache.layout(), dtype));
  }
  return outline;
}

Result<ModelOutline> OutlineOfFamily(const weights::Checkpoint& checkpoint) {
  const std::string& architecture = checkpoint.architecture();
  if (IsDeepseekV3(architecture)) {
    ASSIGN_OR_RETURN(const DeepseekV3Config config, ReadDeepseekV3Config(checkpoint));
    return V3Outline(config);
  }
  if (architecture == "DeepseekV4ForCausalLM") {
    ASSIGN_OR_RETURN(const DeepseekV4Config config, ReadDeepseekV4Config(checkpoint));
    return TrunkOutline<DeepseekV4Cache>(config);
  }
  if (architecture == "DeepseekV41ForCausalLM") {
    ASSIGN_OR_RETURN(const DeepseekV41Config config, ReadDeepseekV41Config(checkpoint));
    return TrunkOutline<DeepseekV41Cache>(config);
  }
  return DenseOutline(checkpoint);
}

}  // namespace

Result<ModelOutline> ReadOutline(const weights::Checkpoint& checkpoint) {
  Result<ModelOutline> outline = OutlineOfFamily(checkpoint);
  if (!outline.ok()) return outline.status().Under(checkpoint.path().string());
  return outline;
}

}  // namespace hayate::models
