#include "models/detail/deepseek_v3_cache.h"

#include "base/error.h"

namespace hayate::models {

Result<DeepseekV3Cache> DeepseekV3Cache::Plan(const DeepseekV3Config& config,
                                              const LoadOptions& options, int32_t num_layers) {
  DeepseekV3Cache cache;
  ops::RowFormat rows = ops::RowFormat::kF32, keys = ops::RowFormat::kF32;
  switch (options.kv_dtype) {
    case DType::kF32:
      break;
    case DType::kF16:  // rows are bf16 in the model: a latent's range asks for its exponent
    case DType::kBF16:
      rows = keys = ops::RowFormat::kBF16;
      break;
    case DType::kF8E4M3:
      rows = ops::RowFormat::kFp8Row;
      keys = ops::RowFormat::kFp8Key;
      cache.packed_ = true;
      break;
    default:
      return Error(ErrorCode::kInvalidArgument,
                   "a latent cache of type {}; F32, BF16 and F8_E4M3 exist",
                   Info(options.kv_dtype).name);
  }
  const int32_t width = config.latent_dim + config.rope_dim;
  if (!ops::HasRowFormat(rows, width, config.rope_dim)) {
    return Error(ErrorCode::kInvalidArgument,
                 "a latent of {} features cannot be quantised in whole blocks; use a BF16 cache",
                 config.latent_dim);
  }
  cache.latents_ = {
      .format = rows, .page_rows = options.page_tokens, .width = width, .rotary = config.rope_dim};
  cache.key_offset_ = ops::LatentPageBytes(cache.latents_);
  cache.layer_bytes_ = cache.key_offset_;
  if (config.indexer) {
    cache.keys_ = {.format = keys,
                   .page_rows = options.page_tokens,
                   .width = config.indexer->head_dim,
                   .rotary = config.rope_dim};
    cache.layer_bytes_ += ops::LatentPageBytes(cache.keys_);
  }
  cache.layout_.page_tokens = options.page_tokens;
  cache.layout_.groups = {
      {.name = "latent", .kind = CacheKind::kFull, .page_bytes = num_layers * cache.layer_bytes_}};
  return cache;
}

DeepseekV3LayerCache DeepseekV3Cache::Layer(int layer, std::byte* base) const {
  DeepseekV3LayerCache view = {latents_, keys_, packed_};
  view.latents.base = base + layer * layer_bytes_;
  view.keys.base = view.latents.base + key_offset_;
  view.latents.page_stride = view.keys.page_stride = page_bytes();
  return view;
}

}  // namespace hayate::models
