#include "ops/sparse_attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/sparse_attention/testing/paged_rows.h"

namespace hayate::ops {
namespace {

using testing::PagedRows;
using testing::RandomFloats;
using testing::TestStep;
using testing::ViewOf;

struct Case {
  RowFormat format = RowFormat::kF32;
  int32_t width = 32, rotary = 8, heads = 3;
  int32_t window = 16, ratio = 4, page_tokens = 8;
  std::vector<int32_t> lengths = {1, 37, 70}, counts = {1, 5, 1};
};

// Owns everything an argument struct points to.
class AttentionTest : public ::testing::Test {
 protected:
  void Prepare(const Case& c, uint64_t seed) {
    rng_ = Rng(seed);
    step_ = std::make_unique<TestStep>(c.lengths, c.counts);
    window_ =
        std::make_unique<PagedRows>(c.format, c.page_tokens, c.width, c.rotary, c.lengths, rng_);
    std::vector<int32_t> entries;
    for (const int32_t length : c.lengths) {
      entries.push_back(c.ratio == 0 ? 0 : length / c.ratio);
    }
    const int32_t page_rows = c.ratio == 0 ? 1 : c.page_tokens / c.ratio;
    entries_ = std::make_unique<PagedRows>(c.format, page_rows, c.width, c.rotary, entries, rng_);
    const int64_t size = step_->tokens() * c.heads * c.width;
    q_ = RandomFloats(size, rng_);
    sinks_ = RandomFloats(c.heads, rng_);
    out_.assign(static_cast<size_t>(size), NAN);
    const Shape shape{step_->tokens(), c.heads, c.width};
    args_ = {.out = ViewOf(out_, shape),
             .q = ViewOf(q_, shape),
             .positions = step_->positions.data(),
             .window_cache = window_->view(),
             .window_rows = window_->Rows(step_->q_begin, step_->kv_len),
             .window = c.window,
             .entry_cache = entries_->view(),
             .entry_rows = entries_->Rows(step_->q_begin, step_->kv_len),
             .ratio = c.ratio,
             .scale = 1.0f / std::sqrt(static_cast<float>(c.width)),
             .sinks = sinks_.data()};
  }
  std::vector<float> Run() {
    SparseAttention({}, workspace_, args_);
    return out_;
  }
  std::vector<float> Expected() {
    SparseAttentionReference(args_);
    return out_;
  }
  void ExpectEqualToReference() {
    const std::vector<float> actual = Run(), expected = Expected();
    // Weights sum to at most 1 over values of order 1; the scores' error is a few ulp of 10.
    for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 2e-5f) << i;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  Workspace workspace_{Buffer::Allocate(*device_, size_t{1} << 20).value()};
  Rng rng_{1};
  std::unique_ptr<TestStep> step_;
  std::unique_ptr<PagedRows> window_, entries_;
  std::vector<float> q_, sinks_, out_;
  SparseAttentionArgs args_;
};

TEST_F(AttentionTest, EqualsTheDefinitionOverOddShapes) {
  const Case cases[] = {
      {},
      {.width = 17, .rotary = 2, .heads = 1, .window = 1, .page_tokens = 4},
      {.width = 128, .rotary = 64, .heads = 5, .window = 128, .ratio = 0},
      {.width = 48, .window = 5, .ratio = 8, .lengths = {8, 9, 200}, .counts = {8, 9, 60}},
      {.format = RowFormat::kBF16, .width = 33, .rotary = 4},
      {.format = RowFormat::kFp8, .width = 192, .rotary = 64},
      {.format = RowFormat::kFp8All, .width = 96, .rotary = 64},
      {.format = RowFormat::kFp4All, .width = 96, .rotary = 64, .ratio = 1},
  };
  for (uint64_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    Prepare(cases[i], i);
    ExpectEqualToReference();
    args_.sinks = nullptr;
    ExpectEqualToReference();
    const std::vector<int32_t> begin = {0, 33, 65};
    args_.window_begin = begin.data();
    ExpectEqualToReference();
  }
}

TEST_F(AttentionTest, ASelectionTakesTheNamedEntriesAlone) {
  Prepare({}, 5);
  const std::vector<float> all = Run();
  // Every token: entries 0 and, where it is visible, 3; token 0 sees none.
  const auto tokens = static_cast<size_t>(step_->tokens());
  std::vector<int32_t> selected(tokens * 2), counts(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    const int32_t visible = (step_->positions[t] + 1) / args_.ratio;
    for (const int32_t e : {0, 3}) {
      if (e < visible) selected[t * 2 + static_cast<size_t>(counts[t]++)] = e;
    }
  }
  args_.selected = selected.data();
  args_.selected_count = counts.data();
  args_.selected_stride = 2;
  ExpectEqualToReference();
  EXPECT_NE(Run(), all);
}

TEST_F(AttentionTest, SelectingEveryVisibleEntryGivesTheBitsOfAllOfThem) {
  Prepare({}, 6);
  const std::vector<float> all = Run();
  const auto tokens = static_cast<size_t>(step_->tokens());
  constexpr int32_t kStride = 32;
  std::vector<int32_t> selected(tokens * kStride), counts(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    counts[t] = (step_->positions[t] + 1) / args_.ratio;
    for (int32_t e = 0; e < counts[t]; ++e) {
      selected[t * kStride + static_cast<size_t>(e)] = e;
    }
  }
  args_.selected = selected.data();
  args_.selected_count = counts.data();
  args_.selected_stride = kStride;
  EXPECT_EQ(Run(), all);
}

TEST_F(AttentionTest, AHugeSinkLeavesNothingAndATinyOneIsNoSink) {
  Prepare({}, 7);
  std::fill(sinks_.begin(), sinks_.end(), 1e4f);
  for (const float value : Run()) EXPECT_EQ(value, 0.0f);
  std::fill(sinks_.begin(), sinks_.end(), -1e4f);
  const std::vector<float> tiny = Run();
  args_.sinks = nullptr;
  EXPECT_EQ(tiny, Run());
}

TEST_F(AttentionTest, TheTokenJustOutsideTheWindowIsNotRead) {
  Case c = {.ratio = 0, .lengths = {40}, .counts = {1}};
  Prepare(c, 8);
  const std::vector<float> before = Run();
  const std::vector<float> other(static_cast<size_t>(c.width), 3.0f);
  const auto replace = [&](int32_t position) {
    StoreLatentRow(window_->view(), window_->PageOf(0, position), position % c.page_tokens,
                   other.data());
  };
  replace(39 - c.window);
  EXPECT_EQ(Run(), before);
  replace(39 - c.window + 1);
  EXPECT_NE(Run(), before);
}

TEST_F(AttentionTest, AQueryDoesNotDependOnItsBatch) {
  Prepare({}, 9);
  const std::vector<float> all = Run();
  // The last token of the last sequence again, alone.
  const std::vector<int32_t> q_begin = {0, 0, 0, 1};
  const auto last = static_cast<size_t>(step_->tokens() - 1);
  const int64_t width = int64_t{3} * 32;
  args_.window_rows.q_begin = args_.entry_rows.q_begin = q_begin.data();
  args_.positions += last;
  args_.q.data += static_cast<int64_t>(last) * width * 4;
  SparseAttention({}, workspace_, args_);
  EXPECT_TRUE(std::equal(out_.begin(), out_.begin() + width,
                         all.begin() + static_cast<long>(last) * width));
}

}  // namespace
}  // namespace hayate::ops
