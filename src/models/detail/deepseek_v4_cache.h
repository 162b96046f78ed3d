#pragma once
// Where a DeepSeek V4 model keeps what it remembers. Cache groups, of pages of P tokens, P a
// multiple of every compression ratio:
//
//   window          kWindow(W)        per layer a latent row per token
//   compressed_m    kCompressed(m)    per layer of ratio m a latent row per entry; for overlapping
//                                     layers then an index key per entry
//   overlap         kWindow(2·ratio)  per overlapping layer the first halves of the page's newest
//                                     whole block: what the next page begins with
//   pending         kState            per compressed layer its unfinished block; empty at every
//                                     page border
//
// So a prefix of whole pages can be resumed where its last page has its window and overlap parts.

#include <cstdint>
#include <vector>

#include "models/detail/deepseek_v4_config.h"
#include "models/registry.h"
#include "ops/compress/compress.h"
#include "ops/sparse_attention/latent_rows.h"
#include "tensor/cache_layout.h"

namespace hayate::models {

class DeepseekV4Cache {
 public:
  // kInvalidArgument for a page size or a cache type that cannot work with the config.
  static Result<DeepseekV4Cache> Plan(const DeepseekV4Config& config, const LoadOptions& options);

  const CacheLayout& layout() const { return layout_; }
  int64_t page_bytes(int group) const {
    return layout_.groups[static_cast<size_t>(group)].page_bytes;
  }
  // Whether rows are quantised, and index queries with them.
  bool packed() const { return packed_; }

  int window_group() const { return 0; }
  int entry_group(int layer) const { return layers_[static_cast<size_t>(layer)].entry_group; }
  int overlap_group() const { return overlap_group_; }
  int pending_group() const { return pending_group_; }

  // One layer's part of a group, for a pool that starts at `base`.
  ops::LatentLayerView WindowRows(int layer, std::byte* base) const;
  ops::LatentLayerView Entries(int layer, std::byte* base) const;
  ops::LatentLayerView IndexKeys(int layer, std::byte* base) const;
  ops::CompressorStates Overlap(int layer, std::byte* base) const;
  ops::CompressorStates IndexOverlap(int layer, std::byte* base) const;
  ops::CompressorStates Pending(int layer, std::byte* base) const;
  ops::CompressorStates IndexPending(int layer, std::byte* base) const;

 private:
  struct Place {  // byte offsets inside a page of the group
    int entry_group = -1;
    int64_t window = 0, entries = 0, keys = 0, overlap = 0, index_overlap = 0, pending = 0,
            index_pending = 0;
  };
  ops::LatentLayerView Shape(ops::RowFormat format, int32_t page_rows, int32_t width,
                             int group) const;
  void PlaceLayer(const DeepseekV4Config& config, int layer, Place& place);
  int64_t TakeBytes(int group, int64_t bytes);

  CacheLayout layout_;
  std::vector<Place> layers_;
  ops::RowFormat row_format_ = ops::RowFormat::kF32;
  ops::RowFormat key_format_ = ops::RowFormat::kF32;
  bool packed_ = false;
  int overlap_group_ = -1;
  int pending_group_ = -1;
  int32_t head_dim_ = 0, index_dim_ = 0, rotary_dim_ = 0;
};

}  // namespace hayate::models
