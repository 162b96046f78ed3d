#include "ops/indexer/indexer.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/sparse_attention/testing/paged_rows.h"

namespace hayate::ops {
namespace {

using testing::PagedRows;
using testing::RandomFloats;
using testing::TestStep;
using testing::ViewOf;

struct Case {
  RowFormat format = RowFormat::kF32;
  int32_t width = 32, heads = 16, ratio = 4, page_rows = 3, top_k = 8;
  std::vector<int32_t> lengths = {3, 90, 257}, counts = {3, 7, 20};
};

class IndexerTest : public ::testing::Test {
 protected:
  void Prepare(const Case& c, uint64_t seed) {
    rng_ = Rng(seed);
    step_ = std::make_unique<TestStep>(c.lengths, c.counts);
    std::vector<int32_t> entries;
    for (const int32_t length : c.lengths) entries.push_back(length / c.ratio);
    keys_ = std::make_unique<PagedRows>(c.format, c.page_rows, c.width, 8, entries, rng_);
    const int64_t tokens = step_->tokens();
    q_ = RandomFloats(tokens * c.heads * c.width, rng_);
    weights_ = RandomFloats(tokens * c.heads, rng_);
    args_ = {.top_k = c.top_k,
             .q = ViewOf(q_, {tokens, c.heads, c.width}),
             .weights = ViewOf(weights_, {tokens, c.heads}),
             .weight_scale = 0.07f,
             .positions = step_->positions.data(),
             .keys = keys_->view(),
             .rows = keys_->Rows(step_->q_begin, step_->kv_len),
             .ratio = c.ratio};
  }

  struct Choice {
    std::vector<std::vector<int32_t>> selected, blocks;
    bool operator==(const Choice&) const = default;
  };
  template <typename Function>
  Choice Run(Function function, IndexerArgs args) {
    const auto tokens = static_cast<size_t>(step_->tokens());
    std::vector<int32_t> selected(tokens * static_cast<size_t>(args.top_k)), counts(tokens);
    args.selected = selected.data();
    args.counts = counts.data();
    function(args);
    Choice choice;
    for (size_t t = 0; t < tokens; ++t) {
      const int32_t* begin = selected.data() + t * static_cast<size_t>(args.top_k);
      choice.selected.emplace_back(begin, begin + counts[t]);
      if (args.candidate_use == CandidateUse::kNone) continue;
      const int32_t* block =
          args.candidates.blocks + t * static_cast<size_t>(args.candidates.max_blocks);
      choice.blocks.emplace_back(block, block + args.candidates.counts[t]);
    }
    return choice;
  }
  Choice Fast(const IndexerArgs& args) {
    return Run([this](const IndexerArgs& a) { SelectEntries({}, workspace_, a); }, args);
  }
  Choice Reference(const IndexerArgs& args) { return Run(SelectEntriesReference, args); }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  Workspace workspace_{Buffer::Allocate(*device_, size_t{1} << 20).value()};
  Rng rng_{1};
  std::unique_ptr<TestStep> step_;
  std::unique_ptr<PagedRows> keys_;
  std::vector<float> q_, weights_;
  IndexerArgs args_;
};

TEST_F(IndexerTest, SelectsTheBestVisibleEntriesInAscendingOrder) {
  const Case cases[] = {{},
                        {.width = 17, .heads = 5, .top_k = 1},
                        {.ratio = 1, .page_rows = 8, .top_k = 31},
                        {.format = RowFormat::kFp4Key, .width = 64, .top_k = 5},
                        {.format = RowFormat::kBF16, .ratio = 2, .page_rows = 1}};
  for (uint64_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    Prepare(cases[i], i);
    const Choice choice = Fast(args_);
    EXPECT_EQ(choice, Reference(args_));
    for (size_t t = 0; t < choice.selected.size(); ++t) {
      const int32_t visible = (step_->positions[t] + 1) / args_.ratio;
      EXPECT_EQ(static_cast<int32_t>(choice.selected[t].size()), std::min(visible, args_.top_k));
    }
  }
}

TEST_F(IndexerTest, UpToTopKEntriesAreTakenWithoutTheirKeys) {
  Prepare({.top_k = 64}, 2);
  std::fill_n(keys_->view().base, 64, std::byte{0xFF});  // NaN
  for (const auto& selected : Fast(args_).selected) {
    for (size_t i = 0; i < selected.size(); ++i) EXPECT_EQ(selected[i], static_cast<int32_t>(i));
  }
}

TEST_F(IndexerTest, OfEqualScoresTheEarlierEntryWins) {
  Prepare({}, 3);
  std::fill(weights_.begin(), weights_.end(), 0.0f);
  for (const auto& selected : Fast(args_).selected) {
    for (size_t i = 0; i < selected.size(); ++i) EXPECT_EQ(selected[i], static_cast<int32_t>(i));
  }
}

TEST_F(IndexerTest, CandidateBlocksHoldTheNewestAndRestrictLaterLayers) {
  for (const int32_t max_blocks : {1, 3, 100}) {
    for (const int32_t block_size : {1, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << max_blocks << " blocks of " << block_size);
      Prepare({.ratio = 2, .page_rows = 5, .top_k = 6}, 4);
      std::vector<int32_t> blocks(static_cast<size_t>(step_->tokens() * max_blocks));
      std::vector<int32_t> counts(static_cast<size_t>(step_->tokens()));
      args_.candidates = {blocks.data(), counts.data(), max_blocks, block_size};
      args_.candidate_use = CandidateUse::kProduce;
      const Choice expected = Reference(args_);
      const Choice produced = Fast(args_);
      EXPECT_EQ(produced, expected);
      for (size_t t = 0; t < produced.blocks.size(); ++t) {
        const int32_t visible = (step_->positions[t] + 1) / args_.ratio;
        if (visible > 0) {
          EXPECT_EQ(produced.blocks[t].back(), (visible - 1) / block_size);
        }
      }
      // A later layer has queries of its own.
      std::reverse(q_.begin(), q_.end());
      args_.candidate_use = CandidateUse::kConsume;
      const Choice consumed = Fast(args_);
      EXPECT_EQ(consumed, Reference(args_));
      for (size_t t = 0; t < consumed.selected.size(); ++t) {
        const std::set<int32_t> allowed(produced.blocks[t].begin(), produced.blocks[t].end());
        for (const int32_t e : consumed.selected[t]) EXPECT_TRUE(allowed.contains(e / block_size));
      }
    }
  }
}

}  // namespace
}  // namespace hayate::ops
