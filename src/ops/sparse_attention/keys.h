#pragma once
// The keys of one query in the order of summation: window rows by position, then entries by index.

#include <algorithm>

#include "base/check.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::ops {

class TokenKeys {
 public:
  // Token t of step row r.
  TokenKeys(const SparseAttentionArgs& args, int32_t r, int32_t t) : args_(args), r_(r) {
    const int32_t position = args.positions[t];
    const int32_t floor = args.window_begin == nullptr ? 0 : args.window_begin[r];
    window_first_ = std::max(floor, position - args.window + 1);
    window_count_ = std::max(0, position - window_first_ + 1);
    if (args.ratio == 0) return;
    if (args.selected == nullptr) {
      entry_count_ = (position + 1) / args.ratio;
    } else {
      selected_ = args.selected + t * args.selected_stride;
      entry_count_ = args.selected_count[t];
    }
  }

  int64_t count() const { return int64_t{window_count_} + entry_count_; }

  // Key i as fp32: inside the cache where it is stored so, else in `scratch` [D].
  const float* Load(int64_t i, float* scratch) const {
    if (i < window_count_) {
      return LoadFrom(args_.window_cache, args_.window_rows,
                      window_first_ + static_cast<int32_t>(i), scratch);
    }
    const auto e = static_cast<int32_t>(i - window_count_);
    return LoadFrom(args_.entry_cache, args_.entry_rows, selected_ == nullptr ? e : selected_[e],
                    scratch);
  }

 private:
  const float* LoadFrom(const LatentLayerView& cache, const AttentionRows& rows, int32_t index,
                        float* scratch) const {
    const int32_t page = rows.PagesOf(r_)[index / cache.page_rows];
    DCHECK_GE(page, 0) << "row " << index << " has no page";
    const int32_t row = index % cache.page_rows;
    if (cache.format == RowFormat::kF32) {
      return reinterpret_cast<const float*>(cache.base + page * cache.page_stride) +
             int64_t{row} * cache.width;
    }
    LoadLatentRow(cache, page, row, scratch);
    return scratch;
  }

  const SparseAttentionArgs& args_;
  int32_t r_;
  int32_t window_first_ = 0;
  int32_t window_count_ = 0;
  int32_t entry_count_ = 0;
  const int32_t* selected_ = nullptr;
};

}  // namespace hayate::ops
