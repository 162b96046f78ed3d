#pragma once
// Latent rows of a few sequences in pages scattered over a pool, for tests and benches.

#include <cstdint>
#include <vector>

#include "base/align.h"
#include "base/rng.h"
#include "ops/sparse_attention/latent_rows.h"

namespace hayate::ops::testing {

// One layer of a pool for sequences of the given lengths (rows or entries).
class PagedRows {
 public:
  PagedRows(RowFormat format, int32_t page_rows, int32_t width, int32_t rotary,
            const std::vector<int32_t>& lengths, Rng& rng) {
    view_ = {.format = format, .page_rows = page_rows, .width = width, .rotary = rotary};
    view_.page_stride = LatentPageBytes(view_) + 64;  // other layers in between
    for (const int32_t length : lengths) stride_ = std::max(stride_, CeilDiv(length, page_rows));
    stride_ = std::max(stride_, 1);
    const auto pages = static_cast<int32_t>(lengths.size()) * stride_;
    for (int32_t page = 0; page < pages; ++page) tables_.push_back(page);
    for (int32_t i = pages - 1; i > 0; --i) {
      std::swap(tables_[static_cast<size_t>(i)], tables_[rng.Below(static_cast<uint32_t>(i) + 1)]);
    }
    bytes_.assign(static_cast<size_t>(pages * view_.page_stride), std::byte{0xFF});
    view_.base = bytes_.data();
    std::vector<float> row(static_cast<size_t>(width));
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t i = 0; i < lengths[s]; ++i) {
        for (float& value : row) value = rng.NextNormal();
        StoreLatentRow(view_, PageOf(static_cast<int32_t>(s), i), i % page_rows, row.data());
      }
    }
  }

  const LatentLayerView& view() const { return view_; }
  // For copies in the memory of a device.
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<int32_t>& tables() const { return tables_; }
  int32_t PageOf(int32_t sequence, int32_t index) const {
    return tables_[static_cast<size_t>(sequence * stride_ + index / view_.page_rows)];
  }
  std::vector<float> Row(int32_t sequence, int32_t index) const {
    std::vector<float> row(static_cast<size_t>(view_.width));
    LoadLatentRow(view_, PageOf(sequence, index), index % view_.page_rows, row.data());
    return row;
  }
  AttentionRows Rows(const std::vector<int32_t>& q_begin,
                     const std::vector<int32_t>& kv_len) const {
    return {.num_rows = static_cast<int32_t>(kv_len.size()),
            .q_begin = q_begin.data(),
            .kv_len = kv_len.data(),
            .page_table = tables_.data(),
            .page_table_stride = stride_};
  }

 private:
  LatentLayerView view_;
  int32_t stride_ = 0;
  std::vector<int32_t> tables_;
  std::vector<std::byte> bytes_;
};

// A step over sequences: the last `counts[s]` positions of `lengths[s]`.
struct TestStep {
  std::vector<int32_t> q_begin = {0}, kv_len, positions;

  TestStep(const std::vector<int32_t>& lengths, const std::vector<int32_t>& counts) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t i = counts[s]; i > 0; --i) positions.push_back(lengths[s] - i);
      q_begin.push_back(static_cast<int32_t>(positions.size()));
      kv_len.push_back(lengths[s]);
    }
  }
  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
};

inline std::vector<float> RandomFloats(int64_t count, Rng& rng) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rng.NextNormal();
  return values;
}

inline TensorView ViewOf(std::vector<float>& values, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape};
}

}  // namespace hayate::ops::testing
