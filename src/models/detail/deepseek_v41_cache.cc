#include "models/detail/deepseek_v41_cache.h"

namespace hayate::models {

DeepseekV41Cache::DeepseekV41Cache(const DeepseekV41Config& config, const LoadOptions& options,
                                   const TrunkRowFormats& formats)
    : DeepseekTrunkCache(config, options, formats, "entries") {
  if (!ratios().empty() && ratios().back() > 1) AddPendingGroup();
  const bool replays = options.window_reuse != WindowReuse::kStored;
  if (replays) {
    ReplayWindows(options.window_reuse == WindowReuse::kReplayedExactly
                      ? config.num_layers * (config.window - 1)
                      : config.window);
  }
  if (!config.engrams.empty()) {
    // A replay begins anywhere in a prefix and needs the tokens before it: 4 bytes each.
    engram_group_ =
        AddGroup({.name = "engram_tokens",
                  .kind = replays ? CacheKind::kFull : CacheKind::kWindow,
                  .window = replays ? 0 : config.engrams[0].ngram,
                  .page_bytes = layout().page_tokens * static_cast<int64_t>(sizeof(int32_t))});
  }
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int32_t ratio = config.ratio(layer);
    PlaceWindow(layer);
    if (!config.makes_entries(layer)) continue;
    PlaceEntries(layer, ratio);
    PlaceKeys(layer, ratio);
    if (ratio > 1) PlacePending(layer, ratio, config.head_dim);
  }
}

Result<DeepseekV41Cache> DeepseekV41Cache::Plan(const DeepseekV41Config& config,
                                                const LoadOptions& options) {
  const TrunkRowFormats quantised = {ops::RowFormat::kFp8All, ops::RowFormat::kFp4All,
                                     ops::RowFormat::kFp4Key};
  ASSIGN_OR_RETURN(const TrunkRowFormats formats,
                   ChooseRowFormats(config, options.kv_dtype, quantised));
  return DeepseekV41Cache(config, options, formats);
}

}  // namespace hayate::models
