#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/indexer/indexer.h"
#include "ops/norm/layer_norm.h"
#include "ops/sparse_attention/testing/device_rows.h"

namespace hayate::ops {
namespace {

using testing::PagedRows;
using testing::RandomFloats;
using testing::Rounded;
using testing::TestStep;
using testing::ViewOf;

using LayerNormGpuTest = testing::GpuTest;

struct Case {
  RowFormat format = RowFormat::kF32;
  int32_t width = 32, heads = 16, ratio = 4, page_rows = 3, top_k = 8;
  int32_t max_blocks = 0, block_size = 0;
};

class IndexerGpuTest : public testing::LatentGpuTest {
 protected:
  const std::vector<int32_t> lengths_ = {3, 90, 2570}, counts_ = {3, 7, 20};

  // What either side chose.
  struct Choice {
    std::vector<int32_t> selected, counts, blocks, block_counts;
  };

  // Keys and queries are small whole numbers, so that scores are exact in fp32 whatever the order
  // of the sum, with many equal ones among them.
  static std::vector<float> Whole(int64_t count, Rng& rng) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(rng.Below(5)) - 2.0f;
    return values;
  }

  void Compare(const Case& c, DType dtype) {
    Rng rng(5);
    std::vector<int32_t> entries;
    for (const int32_t length : lengths_) entries.push_back(length / c.ratio);
    PagedRows keys(c.format, c.page_rows, c.width, 8, entries, rng);
    for (size_t s = 0; s < entries.size(); ++s) {
      for (int32_t e = 0; e < entries[s]; ++e) {
        const std::vector<float> row = Whole(c.width, rng);
        StoreLatentRow(keys.view(), keys.PageOf(static_cast<int32_t>(s), e), e % c.page_rows,
                       row.data());
      }
    }
    const TestStep step(lengths_, counts_);
    const int64_t tokens = step.tokens();
    std::vector<float> q = Whole(tokens * c.heads * c.width, rng),
                       weights = Whole(tokens * c.heads, rng);
    const auto size = static_cast<size_t>(tokens);
    Choice want = {std::vector<int32_t>(size * static_cast<size_t>(c.top_k), -1),
                   std::vector<int32_t>(size, -1),
                   std::vector<int32_t>(size * static_cast<size_t>(std::max(c.max_blocks, 1)), -1),
                   std::vector<int32_t>(size, -1)};
    IndexerArgs args = {
        .selected = want.selected.data(),
        .counts = want.counts.data(),
        .top_k = c.top_k,
        .q = ViewOf(q, {tokens, c.heads, c.width}),
        .weights = ViewOf(weights, {tokens, c.heads}),
        .weight_scale = 0.25f,
        .positions = step.positions.data(),
        .keys = keys.view(),
        .rows = keys.Rows(step.q_begin, step.kv_len),
        .ratio = c.ratio,
        .candidates = {want.blocks.data(), want.block_counts.data(), c.max_blocks, c.block_size}};
    IndexerArgs device = args;
    const auto selected = ToDevice(want.selected), counts = ToDevice(want.counts),
               blocks = ToDevice(want.blocks), block_counts = ToDevice(want.block_counts);
    device.selected = selected.data();
    device.counts = counts.data();
    device.candidates.blocks = blocks.data();
    device.candidates.counts = block_counts.data();
    device.q = Placed(q, dtype, {tokens, c.heads, c.width});
    device.weights = Placed(weights, DType::kF32, {tokens, c.heads});
    device.positions = Placed(step.positions);
    device.keys = Placed(keys);
    device.rows = Placed(args.rows, step, keys.tables());
    Workspace workspace(
        Buffer::Allocate(*device_, static_cast<size_t>(IndexerWorkspaceBytes(4096, c.width)))
            .value());
    std::vector<CandidateUse> uses = {CandidateUse::kNone};
    if (c.max_blocks > 0) uses = {CandidateUse::kProduce, CandidateUse::kConsume};
    for (const CandidateUse use : uses) {
      args.candidate_use = device.candidate_use = use;
      SelectEntriesReference(args);
      SelectEntries(stream_, workspace, device);
      EXPECT_EQ(ToHost(counts), want.counts);
      ExpectRows(ToHost(selected), want.selected, want.counts, c.top_k);
      if (use != CandidateUse::kProduce) continue;
      EXPECT_EQ(ToHost(block_counts), want.block_counts);
      ExpectRows(ToHost(blocks), want.blocks, want.block_counts, c.max_blocks);
    }
  }
  static void ExpectRows(const std::vector<int32_t>& got, const std::vector<int32_t>& want,
                         const std::vector<int32_t>& counts, int32_t stride) {
    for (size_t t = 0; t < counts.size(); ++t) {
      for (int32_t i = 0; i < counts[t]; ++i) {
        const size_t at = t * static_cast<size_t>(stride) + static_cast<size_t>(i);
        ASSERT_EQ(got[at], want[at]) << "token " << t << ", choice " << i;
      }
    }
  }
};

TEST_F(IndexerGpuTest, SelectsWhatTheDefinitionSelects) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Compare({}, dtype);
    Compare({.width = 128, .heads = 64, .ratio = 1, .page_rows = 64, .top_k = 512}, dtype);
    Compare({.format = RowFormat::kBF16, .width = 20, .heads = 3, .ratio = 1, .top_k = 2000},
            dtype);
    // Small whole numbers keep their values in these formats.
    Compare({.format = RowFormat::kFp8Key, .width = 128, .heads = 8, .ratio = 2, .top_k = 100},
            dtype);
    Compare({.format = RowFormat::kFp4Key, .width = 64, .heads = 4, .ratio = 4, .top_k = 33},
            dtype);
  }
}

TEST_F(IndexerGpuTest, CandidatesPassFromLayerToLayer) {
  for (const auto& [blocks, size] : {std::pair{3, 4}, {7, 8}, {1, 1}, {1000, 4}}) {
    Compare({.ratio = 2, .top_k = 8, .max_blocks = blocks, .block_size = size}, DType::kF32);
  }
}

TEST_F(LayerNormGpuTest, MatchesTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t width : {1, 33, 128, 500}) {
      std::vector<float> x = Rounded(testing::RandomNormals(static_cast<size_t>(9 * width), 1),
                                     dtype),
                         weight = testing::RandomNormals(static_cast<size_t>(width), 2),
                         bias = testing::RandomNormals(static_cast<size_t>(width), 3),
                         want(x.size());
      const auto device_x = ToDevice(x, dtype), out = Poisoned(x.size(), dtype);
      const auto device_weight = ToDevice(weight), device_bias = ToDevice(bias);
      LayerNorm({}, {.out = testing::HostView(want, 9),
                     .x = testing::HostView(x, 9),
                     .weight = weight.data(),
                     .bias = bias.data()});
      LayerNorm(stream_, {.out = out.View(dtype, {9, width}),
                          .x = device_x.View(dtype, {9, width}),
                          .weight = device_weight.data(),
                          .bias = device_bias.data()});
      const std::vector<float> got = FloatsToHost(out, dtype);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 4 * testing::Epsilon(dtype) * (1 + std::abs(want[i])) + 1e-5)
            << width << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hayate::ops
