#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/compress/compress.h"
#include "ops/sparse_attention/testing/device_rows.h"

namespace hayate::ops {
namespace {

using testing::RandomFloats;
using testing::TestStep;

struct Kind {
  int32_t ratio, head_dim;
  bool overlaps;
  int32_t page_tokens;
  bool ape;
  int32_t max_drafts;

  int32_t width() const { return overlaps ? 2 * head_dim : head_dim; }
};

class CompressGpuTest : public testing::LatentGpuTest {
 protected:
  static constexpr int32_t kTokens = 150, kSequences = 3, kPages = 80;

  // Several sequences of kTokens, cut into steps at random; states start as 0xFF, as stale memory
  // may. Every entry must be the definition's.
  void Run(const Kind& kind, uint64_t seed) {
    Rng rng(seed);
    std::vector<float> kv = RandomFloats(int64_t{kSequences} * kTokens * kind.width(), rng),
                       gate = RandomFloats(int64_t{kSequences} * kTokens * kind.width(), rng),
                       ape = RandomFloats(kind.ratio * kind.width(), rng);
    for (float& g : gate) g *= 5.0f;  // far from uniform
    const int64_t pending_stride =
        PendingStateBytes(kind.ratio, kind.width(), kind.head_dim, kind.max_drafts) + 64;
    const int64_t overlap_stride = OverlapStateBytes(kind.ratio, kind.head_dim);
    const auto pending = Poisoned<std::byte>(static_cast<size_t>(pending_stride * kSequences)),
               overlap =
                   Poisoned<std::byte>(static_cast<size_t>(overlap_stride * kPages * kSequences));
    std::vector<int32_t> pending_table = {2, 0, 1}, overlap_table;
    for (int32_t page = 0; page < kPages * kSequences; ++page) {
      overlap_table.push_back(kPages * kSequences - 1 - page);
    }
    const float* placed_ape = Placed(ape);
    std::vector<int32_t> length(kSequences, 0);
    std::vector<std::vector<float>> entries(kSequences);
    while (*std::ranges::min_element(length) < kTokens) {
      std::vector<int32_t> counts;
      for (int32_t& end : length) {
        const int32_t most = rng.Below(4) == 0 ? 70 : 3;
        counts.push_back(
            std::min<int32_t>(kTokens - end, static_cast<int32_t>(rng.Below(most + 1))));
        end += counts.back();
      }
      const TestStep step(length, counts);
      if (step.tokens() == 0) continue;
      const auto tokens = static_cast<size_t>(step.tokens());
      // What the projections give: values, then gates.
      std::vector<float> rows;
      for (int32_t s = 0; s < kSequences; ++s) {
        for (int32_t i = counts[static_cast<size_t>(s)]; i > 0; --i) {
          const int64_t at = int64_t{s} * kTokens + length[static_cast<size_t>(s)] - i;
          const auto append = [&](const std::vector<float>& from) {
            rows.insert(rows.end(), from.begin() + at * kind.width(),
                        from.begin() + (at + 1) * kind.width());
          };
          append(kv);
          append(gate);
        }
      }
      AttentionRows host = {.num_rows = kSequences, .page_table_stride = 1};
      const AttentionRows pending_rows = Placed(host, step, pending_table);
      host.page_table_stride = kPages;
      const AttentionRows overlap_rows = Placed(host, step, overlap_table);
      const int32_t* positions = Placed(step.positions);
      const auto out = Poisoned<float>(tokens * static_cast<size_t>(kind.head_dim));
      const auto seq = Poisoned<int32_t>(tokens), index = Poisoned<int32_t>(tokens),
                 first = Poisoned<int32_t>(tokens);
      const auto device_rows = ToDevice(rows);
      const int64_t bytes = kind.width() * static_cast<int64_t>(sizeof(float));
      const Shape shape{step.tokens(), kind.width()};
      const ConstTensorView values = TensorView{device_rows.buffer.data(), DType::kF32, shape};
      ListCompressedEntries(stream_, {.rows = pending_rows,
                                      .positions = positions,
                                      .num_tokens = static_cast<int32_t>(tokens),
                                      .ratio = kind.ratio,
                                      .seq = seq.data(),
                                      .index = index.data(),
                                      .entry_positions = first.data()});
      Compress(stream_, {.out = out.View(DType::kF32, {step.tokens(), kind.head_dim}),
                         .kv = values,
                         .gate = ConstTensorView{values.data + bytes, DType::kF32, shape},
                         .row_stride = 2 * kind.width(),
                         .ape = kind.ape ? placed_ape : nullptr,
                         .positions = positions,
                         .ratio = kind.ratio,
                         .max_drafts = kind.max_drafts,
                         .pending = {pending.buffer.data(), pending_stride},
                         .pending_rows = pending_rows,
                         .overlap = {overlap.buffer.data(), overlap_stride},
                         .overlap_rows = overlap_rows,
                         .page_tokens = kind.page_tokens});
      const std::vector<float> got = ToHost(out);
      const std::vector<int32_t> indexes = ToHost(index), sequences = ToHost(seq),
                                 firsts = ToHost(first);
      for (size_t t = 0; t < tokens; ++t) {
        const int32_t position = step.positions[t];
        const bool completes = (position + 1) % kind.ratio == 0;
        ASSERT_EQ(indexes[t], completes ? position / kind.ratio : -1);
        ASSERT_EQ(firsts[t], completes ? indexes[t] * kind.ratio : 0);
        if (!completes) continue;
        auto& list = entries[static_cast<size_t>(sequences[t])];
        list.insert(list.end(), got.begin() + static_cast<long>(t) * kind.head_dim,
                    got.begin() + static_cast<long>(t + 1) * kind.head_dim);
      }
    }
    for (size_t s = 0; s < kSequences; ++s) {
      std::vector<float> want(static_cast<size_t>(kTokens / kind.ratio * kind.head_dim));
      const int64_t at = static_cast<int64_t>(s) * kTokens * kind.width();
      CompressReference(want.data(), kv.data() + at, gate.data() + at,
                        kind.ape ? ape.data() : nullptr, kTokens, kind.ratio, kind.width(),
                        kind.head_dim);
      ASSERT_EQ(entries[s].size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(entries[s][i], want[i], 1e-5f * (1 + std::abs(want[i])))
            << "ratio " << kind.ratio << ", sequence " << s << ", element " << i;
      }
    }
  }
};

TEST_F(CompressGpuTest, EntriesOfAnyChunksAreTheDefinitions) {
  const Kind kinds[] = {{4, 20, true, 16, true, 0},    {4, 130, true, 8, false, 3},
                        {2, 8, true, 2, true, 1},      {128, 20, false, 128, true, 0},
                        {8, 136, false, 16, false, 2}, {1, 4, false, 4, true, 0}};
  uint64_t seed = 1;
  for (const Kind& kind : kinds) {
    for (int i = 0; i < 3; ++i) Run(kind, seed++);
  }
}

}  // namespace
}  // namespace hayate::ops
