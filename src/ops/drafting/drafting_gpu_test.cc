#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/drafting/draft_logits.h"
#include "ops/drafting/proposals.h"
#include "ops/sparse_attention/testing/device_rows.h"

namespace hayate::ops {
namespace {

using testing::RandomNormals;
using testing::TestStep;
using Ints = std::vector<int32_t>;

// A batch of rows of any lengths, some without tokens behind each other, of which some propose.
struct Batch {
  explicit Batch(Rng& rng) {
    const int num_rows = rng.Between(1, 300);
    Ints lengths, counts;
    for (int r = 0; r < num_rows; ++r) {
      counts.push_back(rng.Between(1, 9));
      lengths.push_back(counts.back() + rng.Between(0, 50));
      table_row.push_back(rng.Between(0, 999));
      if (rng.Below(3) > 0) proposals.push_back(r);
    }
    step = std::make_unique<TestStep>(lengths, counts);
    for (int64_t t = 0; t < step->tokens(); ++t) {
      ids.push_back(rng.Between(0, 999));
      next_ids.push_back(rng.Between(0, 999));
    }
  }
  AttentionRows rows() const {
    return {.num_rows = static_cast<int32_t>(step->kv_len.size()),
            .q_begin = step->q_begin.data(),
            .kv_len = step->kv_len.data(),
            .table_row = table_row.data()};
  }

  std::unique_ptr<TestStep> step;
  Ints table_row, proposals, ids, next_ids;
};

class DraftingGpuTest : public testing::LatentGpuTest {
 protected:
  AttentionRows PlacedRows(const Batch& batch) {
    AttentionRows rows = batch.rows();
    rows.q_begin = Placed(batch.step->q_begin);
    rows.kv_len = Placed(batch.step->kv_len);
    rows.table_row = Placed(batch.table_row);
    return rows;
  }
  // What an operator writes on the host and on the device, which must be equal.
  struct Output {
    Ints host;
    testing::DeviceArray<int32_t> device;
  };
  Output Make(size_t count) { return {Ints(count, -7), Poisoned<int32_t>(count)}; }
  void ExpectEqual(const Output& output, const char* what) {
    EXPECT_EQ(ToHost(output.device), output.host) << what;
  }
};

TEST_F(DraftingGpuTest, ListsProposalsAsTheHostDoes) {
  Rng rng(1);
  for (int turn = 0; turn < 6; ++turn) {
    const Batch batch(rng);
    const size_t n = batch.proposals.size();
    Output last = Make(n), positions = Make(n), anchors = Make(n), q_begin = Make(n + 1),
           kv_len = Make(n), table_row = Make(n), shifted = Make(n), lengths = Make(n);
    const Proposals host = {static_cast<int32_t>(n), batch.proposals.data()},
                    device = {static_cast<int32_t>(n), Placed(batch.proposals)};
    const AttentionRows rows = PlacedRows(batch);
    ListProposals({}, {batch.rows(), host, batch.step->positions.data(), batch.next_ids.data(),
                       last.host.data(), positions.host.data(), anchors.host.data()});
    ListProposals(stream_, {rows, device, Placed(batch.step->positions), Placed(batch.next_ids),
                            last.device.data(), positions.device.data(), anchors.device.data()});
    ExpectEqual(last, "last");
    ExpectEqual(positions, "positions");
    ExpectEqual(anchors, "anchors");
    ListProposalRows({}, {batch.rows(), host, 5, 3, q_begin.host.data(), kv_len.host.data(),
                          table_row.host.data()});
    ListProposalRows(stream_, {rows, device, 5, 3, q_begin.device.data(), kv_len.device.data(),
                               table_row.device.data()});
    ExpectEqual(q_begin, "q_begin");
    ExpectEqual(kv_len, "kv_len");
    ExpectEqual(table_row, "table_row");
    ShiftPositions(
        {}, {positions.host.data(), host.count, 4, shifted.host.data(), lengths.host.data()});
    ShiftPositions(stream_, {positions.device.data(), host.count, 4, shifted.device.data(),
                             lengths.device.data()});
    ExpectEqual(shifted, "shifted");
    ExpectEqual(lengths, "lengths");
  }
}

TEST_F(DraftingGpuTest, ListsBlocksAsTheHostDoes) {
  Rng rng(2);
  for (const auto& [count, block] :
       {std::pair(1, 1), std::pair(3, 5), std::pair(130, 7), std::pair(257, 5)}) {
    Ints last(static_cast<size_t>(count)), anchors(last.size());
    for (int32_t& position : last) position = rng.Between(0, 5000);
    for (int32_t& anchor : anchors) anchor = rng.Between(0, 999);
    const size_t queries = last.size() * static_cast<size_t>(block);
    std::vector<Output> out;
    for (int i = 0; i < 6; ++i) out.push_back(Make(queries));
    out.push_back(Make(queries * static_cast<size_t>(block)));
    out.push_back(Make(last.size()));
    const auto args = [&](const int32_t* positions, const int32_t* ids, const auto& data) {
      return DraftBlocksArgs{.count = count,
                             .block = block,
                             .noise_token = 77,
                             .last_positions = positions,
                             .anchors = ids,
                             .token_ids = data(out[0]),
                             .positions = data(out[1]),
                             .context_end = data(out[2]),
                             .row = data(out[3]),
                             .place = data(out[4]),
                             .selected = data(out[6]),
                             .selected_count = data(out[5]),
                             .pages = data(out[7])};
    };
    ListDraftBlocks(
        {}, args(last.data(), anchors.data(), [](Output& output) { return output.host.data(); }));
    ListDraftBlocks(stream_, args(Placed(last), Placed(anchors),
                                  [](Output& output) { return output.device.data(); }));
    for (const Output& output : out) ExpectEqual(output, "a list");
  }
}

TEST_F(DraftingGpuTest, AddsAnchorsAsTheHostDoes) {
  Rng rng(3);
  for (int turn = 0; turn < 6; ++turn) {
    const Batch batch(rng);
    const size_t n = batch.proposals.size(), rows = batch.step->kv_len.size(),
                 tokens = batch.ids.size() + n;
    Output ids = Make(tokens), positions = Make(tokens), q_begin = Make(rows + 1),
           kv_len = Make(rows), anchors = Make(n);
    AddAnchorsArgs args = {.batch = batch.rows(),
                           .proposals = {static_cast<int32_t>(n), batch.proposals.data()},
                           .num_tokens = static_cast<int32_t>(batch.ids.size()),
                           .token_ids = batch.ids.data(),
                           .positions = batch.step->positions.data(),
                           .next_ids = batch.next_ids.data(),
                           .out_ids = ids.host.data(),
                           .out_positions = positions.host.data(),
                           .q_begin = q_begin.host.data(),
                           .kv_len = kv_len.host.data(),
                           .anchors = anchors.host.data()};
    AddAnchors({}, args);
    args.batch = PlacedRows(batch);
    args.proposals.rows = Placed(batch.proposals);
    args.token_ids = Placed(batch.ids);
    args.positions = Placed(batch.step->positions);
    args.next_ids = Placed(batch.next_ids);
    args.out_ids = ids.device.data();
    args.out_positions = positions.device.data();
    args.q_begin = q_begin.device.data();
    args.kv_len = kv_len.device.data();
    args.anchors = anchors.device.data();
    AddAnchors(stream_, args);
    ExpectEqual(ids, "ids");
    ExpectEqual(positions, "positions");
    ExpectEqual(q_begin, "q_begin");
    ExpectEqual(kv_len, "kv_len");
    ExpectEqual(anchors, "anchors");
  }
}

TEST_F(DraftingGpuTest, MarkovGuessesAreThoseOfTheHost) {
  for (const auto& [count, width, hidden, rank] :
       {std::tuple(1, 1, 1, 1), std::tuple(3, 257, 100, 16), std::tuple(9, 5000, 7168, 512)}) {
    constexpr int32_t kBlock = 4, kGuess = 2;
    const int64_t n = count, w = width, h = hidden, m = rank, stride = w + 5;
    const auto floats = [](int64_t size, uint64_t seed) {
      return RandomNormals(static_cast<size_t>(size), seed);
    };
    std::vector<float> base = floats(n * kBlock * w, 1), added = floats(n * w, 2),
                       states = floats(n * kBlock * h, 3), before = floats(n * m, 4);
    std::vector<float> proj = floats(h + m, 5);
    for (float& value : proj) value /= std::sqrt(static_cast<float>(h + m));
    std::vector<float> logits(static_cast<size_t>(n * stride)), confidences(static_cast<size_t>(n));
    const auto view = [](std::vector<float>& values, int64_t rows) {
      return testing::HostView(values, rows);
    };
    MarkovGuess({}, {.logits = logits.data(),
                     .logits_stride = stride,
                     .confidences = confidences.data(),
                     .base = view(base, n * kBlock),
                     .added = view(added, n),
                     .states = view(states, n * kBlock),
                     .before = view(before, n),
                     .proj = proj.data(),
                     .block = kBlock,
                     .guess = kGuess});
    const auto device_logits = Poisoned<float>(logits.size()),
               device_confidences = Poisoned<float>(confidences.size());
    MarkovGuess(stream_, {.logits = device_logits.data(),
                          .logits_stride = stride,
                          .confidences = device_confidences.data(),
                          .base = Placed(base, DType::kF32, {n * kBlock, w}),
                          .added = Placed(added, DType::kF32, {n, w}),
                          .states = Placed(states, DType::kF32, {n * kBlock, h}),
                          .before = Placed(before, DType::kF32, {n, m}),
                          .proj = Placed(proj),
                          .block = kBlock,
                          .guess = kGuess});
    const std::vector<float> got = ToHost(device_logits), sure = ToHost(device_confidences);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < w; ++c) {
        const auto at = static_cast<size_t>(r * stride + c);
        ASSERT_EQ(got[at], logits[at]) << "row " << r << ", column " << c;
      }
      EXPECT_NEAR(sure[static_cast<size_t>(r)], confidences[static_cast<size_t>(r)], 1e-5);
    }
  }
}

TEST_F(DraftingGpuTest, MapsLogitsAndLeavesOthersAlone) {
  Rng rng(4);
  for (const auto& [count, vocab, width] :
       {std::tuple(1, 1, 1), std::tuple(3, 300, 50), std::tuple(17, 5001, 900)}) {
    const std::vector<float> from = RandomNormals(static_cast<size_t>(count * width), 1),
                             before = RandomNormals(static_cast<size_t>(count * vocab), 2);
    Ints source(static_cast<size_t>(vocab));
    for (int32_t& column : source) column = rng.Between(-2, width - 1);
    const auto logits = ToDevice(before);
    MapLogits(stream_, {.logits = logits.View(DType::kF32, {count, vocab}),
                        .from = Placed(from, DType::kF32, {count, width}),
                        .source = Placed(source)});
    const std::vector<float> got = ToHost(logits);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i / source.size();
      const int32_t column = source[i % source.size()];
      const float want = column == MapLogitsArgs::kOthers ? before[i]
                         : column == MapLogitsArgs::kNoSource
                             ? -std::numeric_limits<float>::infinity()
                             : from[row * static_cast<size_t>(width) + static_cast<size_t>(column)];
      ASSERT_EQ(got[i], want) << i;
    }
  }
}

}  // namespace
}  // namespace hayate::ops
