#pragma once
// The keys of one query as a kernel sees them: window rows by position, then entries.

#include "ops/attention/sm90/rows.cuh"
#include "ops/sparse_attention/sm90/row_cache.cuh"
#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::ops::sm90 {

struct AttentionCaches {
  RowCache window, entries;

  explicit AttentionCaches(const SparseAttentionArgs& args)
      : window(args.window_cache), entries(args.entry_cache) {}
};

class QueryKeys {
 public:
  __device__ QueryKeys(const SparseAttentionArgs& args, const AttentionCaches& caches, int32_t t)
      : caches_(caches) {
    const int32_t row =
        RowOfToken(args.window > 0 ? args.window_rows : args.entry_rows, args.first_token + t);
    const int32_t position = args.positions[t];
    if (args.window > 0) {
      const int32_t floor = args.window_begin == nullptr ? 0 : args.window_begin[row];
      window_first_ = max(floor, position - args.window + 1);
      window_count_ = max(0, position - window_first_ + 1);
      window_pages_ = args.window_rows.PagesOf(row);
    }
    if (args.ratio == 0) return;
    entry_pages_ = args.entry_rows.PagesOf(row);
    entry_count_ = (position + 1) / args.ratio;
    if (args.selected == nullptr) return;
    selected_ = args.selected + t * args.selected_stride;
    entry_count_ = args.selected_count[t];
  }

  __device__ int32_t count() const { return window_count_ + entry_count_; }

  // Where key i < count() lies, and in which cache.
  struct Key {
    RowPlace place;
    bool in_window = false;
  };
  __device__ Key At(int32_t i) const {
    if (i < window_count_) {
      return {Place(caches_.window, window_pages_, window_first_ + i), true};
    }
    const int32_t entry = i - window_count_;
    return {Place(caches_.entries, entry_pages_, selected_ == nullptr ? entry : selected_[entry]),
            false};
  }
  __device__ const RowCache& CacheOf(const Key& key) const {
    return key.in_window ? caches_.window : caches_.entries;
  }

 private:
  static __device__ RowPlace Place(const RowCache& cache, const int32_t* pages, int32_t index) {
    // A page that is not there (never, of a right step) is read as the first one.
    const int32_t page = max(pages[index / cache.page_rows], 0);
    return PlaceOf(cache, page, index % cache.page_rows);
  }

  const AttentionCaches& caches_;
  const int32_t* window_pages_ = nullptr;
  const int32_t* entry_pages_ = nullptr;
  const int32_t* selected_ = nullptr;
  int32_t window_first_ = 0, window_count_ = 0, entry_count_ = 0;
};

}  // namespace hayate::ops::sm90
