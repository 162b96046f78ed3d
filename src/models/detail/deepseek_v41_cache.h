#pragma once
// Where a DeepSeek V4.1 model keeps what it remembers. Cache groups, of pages of P tokens, P a
// multiple of every ratio:
//
//   window          kWindow(W)      per layer a latent row per token
//   entries_m       kCompressed(m)  per source layer of ratio m (kFull for m = 1) a latent row and
//                                   an index key per entry
//   pending         kState          per source layer of ratio > 1 its unfinished block; empty at
//                                   every page border
//   engram_tokens   kWindow(N)      the compressed id of every token
//
// So a prefix of whole pages can be resumed where its last page has its window parts.

#include <cstdint>
#include <vector>

#include "models/detail/deepseek_v41_config.h"
#include "models/registry.h"
#include "ops/compress/compress.h"
#include "ops/sparse_attention/latent_rows.h"
#include "tensor/cache_layout.h"

namespace hayate::models {

class DeepseekV41Cache {
 public:
  // kInvalidArgument for a page size or a cache type that cannot work with the config.
  static Result<DeepseekV41Cache> Plan(const DeepseekV41Config& config, const LoadOptions& options);

  const CacheLayout& layout() const { return layout_; }
  int64_t page_bytes(int group) const {
    return layout_.groups[static_cast<size_t>(group)].page_bytes;
  }
  // Whether rows are quantised, and index queries with them.
  bool packed() const { return packed_; }

  int window_group() const { return 0; }
  int entry_group(int source) const { return layers_[static_cast<size_t>(source)].entry_group; }
  int pending_group() const { return pending_group_; }  // −1: there is none
  int engram_group() const { return engram_group_; }    // −1: there is none

  // One layer's part of a group, for a pool that starts at `base`. Entries, keys and states are of
  // source layers.
  ops::LatentLayerView WindowRows(int layer, std::byte* base) const;
  ops::LatentLayerView Entries(int source, std::byte* base) const;
  ops::LatentLayerView IndexKeys(int source, std::byte* base) const;
  ops::CompressorStates Pending(int source, std::byte* base) const;

 private:
  struct Place {  // byte offsets inside a page of the group
    int entry_group = -1;
    int64_t window = 0, entries = 0, keys = 0, pending = 0;
  };
  ops::LatentLayerView Shape(ops::RowFormat format, int32_t page_rows, int32_t width,
                             int group) const;
  Status ChooseFormats(const DeepseekV41Config& config, DType kv_dtype);
  void AddGroups(const DeepseekV41Config& config, const std::vector<int32_t>& ratios);
  void PlaceLayer(const DeepseekV41Config& config, int layer, Place& place);
  int64_t TakeBytes(int group, int64_t bytes);
  int32_t PageRows(int group) const;

  CacheLayout layout_;
  std::vector<Place> layers_;
  ops::RowFormat window_format_ = ops::RowFormat::kF32;
  ops::RowFormat entry_format_ = ops::RowFormat::kF32;
  ops::RowFormat key_format_ = ops::RowFormat::kF32;
  bool packed_ = false;
  int pending_group_ = -1;
  int engram_group_ = -1;
  int32_t head_dim_ = 0, index_dim_ = 0, rotary_dim_ = 0;
};

}  // namespace hayate::models
