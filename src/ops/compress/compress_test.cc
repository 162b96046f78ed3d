#include "ops/compress/compress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/sparse_attention/testing/paged_rows.h"

namespace hayate::ops {
namespace {

using testing::RandomFloats;
using testing::TestStep;
using testing::ViewOf;

struct Shape4 {
  int32_t ratio, head_dim;
  bool overlaps;
  int32_t page_tokens;
  bool ape;
  int32_t max_drafts = 0;
};

// One sequence's tokens, cut into steps; states start as NaN, as stale memory may.
class Compressor {
 public:
  Compressor(const Shape4& shape, const std::vector<float>& kv, const std::vector<float>& gate,
             const std::vector<float>& ape)
      : shape_(shape), kv_(kv), gate_(gate), ape_(ape) {
    const auto floats = [](int64_t bytes) { return static_cast<size_t>(bytes) / sizeof(float); };
    pending_.assign(floats(PendingBytes()) * 3, NAN);
    overlap_stride_ = OverlapStateBytes(shape.ratio, shape.head_dim);
    overlap_.assign(floats(overlap_stride_) * kPages, NAN);
    for (int32_t page = 0; page < kPages; ++page) overlap_table_.push_back(kPages - 1 - page);
  }

  int32_t width() const { return shape_.overlaps ? 2 * shape_.head_dim : shape_.head_dim; }

  void Step(int32_t begin, int32_t end) {
    const std::vector<float> out = Run(begin, end, kv_, gate_);
    entries.insert(entries.end(), out.begin(), out.end());
  }
  // The same with tokens [kept, end) that are wrong: what they complete is not kept.
  void StepWithDrafts(int32_t begin, int32_t kept, int32_t end, const std::vector<float>& kv,
                      const std::vector<float>& gate) {
    const auto at = [this](int32_t t) { return int64_t{t} * width(); };
    std::vector<float> mixed_kv = kv_, mixed_gate = gate_;
    std::copy(kv.begin() + at(kept), kv.begin() + at(end), mixed_kv.begin() + at(kept));
    std::copy(gate.begin() + at(kept), gate.begin() + at(end), mixed_gate.begin() + at(kept));
    const std::vector<float> out = Run(begin, end, mixed_kv, mixed_gate);
    const int32_t whole = kept / shape_.ratio - begin / shape_.ratio;
    entries.insert(entries.end(), out.begin(), out.begin() + whole * shape_.head_dim);
  }

  std::vector<float> Run(int32_t begin, int32_t end, const std::vector<float>& kv,
                         const std::vector<float>& gate) {
    const TestStep step({end}, {end - begin});
    const auto tokens = static_cast<size_t>(step.tokens());
    std::vector<int32_t> seq(tokens), index(tokens), positions(tokens);
    AttentionRows rows = {.num_rows = 1,
                          .q_begin = step.q_begin.data(),
                          .kv_len = step.kv_len.data(),
                          .page_table = &pending_page_,
                          .page_table_stride = 1};
    const int32_t count =
        ListCompressedEntries({}, {.rows = rows,
                                   .positions = step.positions.data(),
                                   .num_tokens = static_cast<int32_t>(step.tokens()),
                                   .ratio = shape_.ratio,
                                   .seq = seq.data(),
                                   .index = index.data(),
                                   .entry_positions = positions.data()});
    EXPECT_EQ(count, end / shape_.ratio - begin / shape_.ratio);
    std::vector<float> out(static_cast<size_t>(std::max(1, count) * shape_.head_dim), -7.0f);
    CompressArgs args = {
        .out = ViewOf(out, {std::max(1, count), shape_.head_dim}),
        .kv = Rows(kv, begin, end),
        .gate = Rows(gate, begin, end),
        .row_stride = width(),
        .ape = shape_.ape ? ape_.data() : nullptr,
        .positions = step.positions.data(),
        .ratio = shape_.ratio,
        .max_drafts = shape_.max_drafts,
        .pending = {reinterpret_cast<std::byte*>(pending_.data()), PendingBytes()},
        .pending_rows = rows,
        .overlap = {reinterpret_cast<std::byte*>(overlap_.data()), overlap_stride_},
        .overlap_rows = rows,
        .page_tokens = shape_.page_tokens};
    args.overlap_rows.page_table = overlap_table_.data();
    args.overlap_rows.page_table_stride = kPages;
    Compress({}, args);
    for (int32_t e = 0; e < count; ++e) {
      EXPECT_EQ(index[static_cast<size_t>(e)], begin / shape_.ratio + e);
      EXPECT_EQ(positions[static_cast<size_t>(e)], index[static_cast<size_t>(e)] * shape_.ratio);
    }
    out.resize(static_cast<size_t>(count * shape_.head_dim));
    return out;
  }

  // Forgets everything but the pages before `position`, as a hit in the prefix cache does.
  void ResumeAt(int32_t position) {
    std::fill(pending_.begin(), pending_.end(), NAN);
    const int32_t first = position / shape_.page_tokens;
    for (int32_t page = 0; page < kPages; ++page) {
      if (page == first - 1) continue;
      const auto at = static_cast<size_t>(overlap_table_[static_cast<size_t>(page)]) *
                      static_cast<size_t>(overlap_stride_) / sizeof(float);
      std::fill_n(overlap_.begin() + static_cast<long>(at),
                  static_cast<size_t>(overlap_stride_) / sizeof(float), NAN);
    }
  }

  std::vector<float> entries;

 private:
  int64_t PendingBytes() const {
    return PendingStateBytes(shape_.ratio, width(), shape_.head_dim, shape_.max_drafts);
  }
  ConstTensorView Rows(const std::vector<float>& all, int32_t begin, int32_t end) const {
    return {reinterpret_cast<const std::byte*>(all.data() + int64_t{begin} * width()), DType::kF32,
            Shape{end - begin, width()}};
  }

  static constexpr int32_t kPages = 40;
  Shape4 shape_;
  const std::vector<float>&kv_, &gate_, &ape_;
  std::vector<float> pending_, overlap_;
  int64_t overlap_stride_ = 0;
  int32_t pending_page_ = 2;
  std::vector<int32_t> overlap_table_;
};

class CompressTest : public ::testing::TestWithParam<Shape4> {
 protected:
  static constexpr int32_t kTokens = 150;
  CompressTest() {
    Rng rng(static_cast<uint64_t>(GetParam().ratio));
    const int32_t width = (GetParam().overlaps ? 2 : 1) * GetParam().head_dim;
    kv_ = RandomFloats(kTokens * width, rng);
    gate_ = RandomFloats(kTokens * width, rng);
    for (float& g : gate_) g *= 5.0f;  // far from uniform
    ape_ = RandomFloats(GetParam().ratio * width, rng);
  }
  Compressor Make() const { return {GetParam(), kv_, gate_, ape_}; }

  std::vector<float> kv_, gate_, ape_;
};

TEST_P(CompressTest, EqualsTheDefinition) {
  Compressor compressor = Make();
  compressor.Step(0, kTokens);
  std::vector<float> expected(
      static_cast<size_t>(kTokens / GetParam().ratio * GetParam().head_dim));
  CompressReference(expected.data(), kv_.data(), gate_.data(),
                    GetParam().ape ? ape_.data() : nullptr, kTokens, GetParam().ratio,
                    compressor.width(), GetParam().head_dim);
  ASSERT_EQ(compressor.entries.size(), expected.size());
  // Up to 128 rescalings of a running sum, each rounded.
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(compressor.entries[i], expected[i], 1e-5f) << i;
  }
}

TEST_P(CompressTest, ChunksDoNotChangeTheBits) {
  Compressor whole = Make();
  whole.Step(0, kTokens);
  for (const int32_t chunk : {1, 2, 3, 5, 31, 64}) {
    Compressor chunked = Make();
    for (int32_t begin = 0; begin < kTokens; begin += chunk) {
      chunked.Step(begin, std::min(kTokens, begin + chunk));
    }
    EXPECT_EQ(chunked.entries, whole.entries) << chunk;
  }
}

TEST_P(CompressTest, APrefixOfWholePagesIsResumedFromItsLastPageAlone) {
  Compressor whole = Make();
  whole.Step(0, kTokens);
  const int32_t page = GetParam().page_tokens;
  for (int32_t begin = page; begin < kTokens; begin += page) {
    Compressor resumed = Make();
    resumed.Step(0, begin);
    resumed.ResumeAt(begin);
    resumed.Step(begin, kTokens);
    EXPECT_EQ(resumed.entries, whole.entries) << begin;
  }
}

// Every number of drafts, of which every number is refused, at every place in blocks and pages: a
// step ends in `drafts` tokens, and the next begins `refused` tokens before its end.
TEST_P(CompressTest, RefusedDraftsLeaveNoTrace) {
  Compressor whole = Make();
  whole.Step(0, kTokens);
  Rng rng(99);
  std::vector<float> kv = RandomFloats(kTokens * whole.width(), rng);
  std::vector<float> gate = RandomFloats(kTokens * whole.width(), rng);
  for (int32_t drafts = 1; drafts <= GetParam().max_drafts; ++drafts) {
    for (int32_t refused = 0; refused <= drafts; ++refused) {
      for (const int32_t prompt : {1, 4, 31}) {
        Compressor compressor = Make();
        compressor.Step(0, prompt);
        int32_t begin = prompt;
        while (begin + 1 + drafts <= kTokens) {
          const int32_t end = begin + 1 + drafts;
          compressor.StepWithDrafts(begin, end - refused, end, kv, gate);
          begin = end - refused;
        }
        compressor.Step(begin, kTokens);
        ASSERT_EQ(compressor.entries, whole.entries)
            << drafts << " drafts, " << refused << " refused, after " << prompt;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CompressTest,
    ::testing::Values(Shape4{4, 16, true, 4, true, 5}, Shape4{4, 33, true, 32, true, 3},
                      Shape4{4, 8, true, 32, true}, Shape4{2, 8, true, 6, false, 7},
                      Shape4{128, 16, false, 128, true, 5}, Shape4{32, 7, false, 64, true, 9},
                      Shape4{32, 8, false, 32, true}, Shape4{2, 16, false, 8, false, 5},
                      Shape4{3, 5, false, 9, true, 1}));

}  // namespace
}  // namespace hayate::ops
