#pragma once
// Where layers of DeepSeek V4 and V4.1 keep what both have: window rows, entries with their index
// keys, pending states. A group's page holds the layers' parts one after the other.

#include <cstdint>
#include <string>
#include <vector>

#include "models/detail/deepseek_step.h"
#include "models/registry.h"
#include "ops/sparse_attention/latent_rows.h"
#include "tensor/cache_layout.h"

namespace hayate::models {

// How rows are stored, by kind.
struct TrunkRowFormats {
  ops::RowFormat window = ops::RowFormat::kF32;
  ops::RowFormat entries = ops::RowFormat::kF32;
  ops::RowFormat keys = ops::RowFormat::kF32;
};
// For a cache of this type: `quantised` for E4M3, all BF16 or all F32 for others. kInvalidArgument
// for a type that does not exist or does not fit the config.
Result<TrunkRowFormats> ChooseRowFormats(const DeepseekTrunkConfig& config, DType kv_dtype,
                                         const TrunkRowFormats& quantised);

class DeepseekTrunkCache {
 public:
  const CacheLayout& layout() const { return layout_; }
  int64_t page_bytes(int group) const {
    return layout_.groups[static_cast<size_t>(group)].page_bytes;
  }
  // Whether rows are quantised, and index queries with them.
  bool packed() const {
    return formats_.window != ops::RowFormat::kF32 && formats_.window != ops::RowFormat::kBF16;
  }
  // Drafts of a row that can be taken back.
  int32_t max_drafts() const;

  int window_group() const { return 0; }
  int entry_group(int layer) const { return places_[static_cast<size_t>(layer)].entry_group; }
  // Groups of states.
  const StateGroups& states() const { return states_; }

  // One layer's part of a group, for a pool that starts at `base`.
  ops::LatentLayerView WindowRows(int layer, std::byte* base) const;
  ops::LatentLayerView Entries(int layer, std::byte* base) const;
  ops::LatentLayerView IndexKeys(int layer, std::byte* base) const;
  ops::CompressorStates Pending(int layer, std::byte* base) const;

 protected:
  // Page size, the window's group and one of entries per ratio, named "<entries>_<ratio>". Pages
  // are of `options.page_tokens`, rounded up to a multiple of every ratio.
  DeepseekTrunkCache(const DeepseekTrunkConfig& config, const LoadOptions& options,
                     const TrunkRowFormats& formats, const std::string& entries);

  int AddGroup(CacheGroup group);
  void AddPendingGroup();
  // Windows are not kept with prefixes; so many of a prefix's last tokens bring them back.
  void ReplayWindows(int32_t num_tokens);
  // Makes room in each of a layer's groups; a group without room so far must have been added.
  void PlaceWindow(int layer);
  void PlaceEntries(int layer, int32_t ratio);
  void PlaceKeys(int layer, int32_t ratio);
  void PlacePending(int layer, int32_t ratio, int32_t width);
  int64_t PendingBytes(int32_t ratio, int32_t width, int32_t head_dim) const;
  int64_t TakeBytes(int group, int64_t bytes);  // returns the offset

  const std::vector<int32_t>& ratios() const { return ratios_; }
  StateGroups states_;

 private:
  struct Place {  // byte offsets inside a page of the group
    int entry_group = -1;
    int64_t window = 0, entries = 0, keys = 0, pending = 0;
  };
  ops::LatentLayerView View(ops::RowFormat format, int32_t page_rows, int32_t width, int group,
                            std::byte* base) const;
  int32_t PageRows(int layer) const;
  Place& place(int layer) { return places_[static_cast<size_t>(layer)]; }
  const Place& place(int layer) const { return places_[static_cast<size_t>(layer)]; }

  CacheLayout layout_;
  TrunkRowFormats formats_;
  std::vector<int32_t> ratios_;  // in use, in the order of their groups
  std::vector<Place> places_;    // [num_layers]
  int32_t head_dim_ = 0, index_dim_ = 0, rotary_dim_ = 0;
};

}  // namespace hayate::models
