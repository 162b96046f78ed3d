#include "ops/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/rng.h"

namespace hayate::ops {
namespace {

struct Rows {
  std::vector<int32_t> q_begin = {0}, kv_len, table_row;

  void Add(int32_t tokens, int32_t length) {
    q_begin.push_back(q_begin.back() + tokens);
    kv_len.push_back(length);
    table_row.push_back(static_cast<int32_t>(kv_len.size()) * 3);
  }
  HostRows view() const { return {q_begin, kv_len, table_row}; }
  // Of the token's row.
  int32_t TokensBefore(int32_t token) const {
    return token - *std::prev(std::ranges::upper_bound(q_begin, token));
  }
};

struct Planned {
  std::vector<std::byte> memory;
  AttentionPlan plan;

  std::vector<DecodeItem> items() const {
    return {plan.decode_items, plan.decode_items + plan.decode_begin[plan.num_decode_blocks]};
  }
};

Planned Plan(const AttentionPlanShape& shape, const Rows& rows) {
  Planned planned;
  const int64_t bytes =
      PlanStagedBytes(shape, static_cast<int32_t>(rows.kv_len.size()), rows.q_begin.back());
  planned.memory.resize(static_cast<size_t>(bytes) + 16);
  auto* staged = reinterpret_cast<std::byte*>(
      AlignUp(reinterpret_cast<uintptr_t>(planned.memory.data()), uintptr_t{16}));
  // Nobody looks at the scratch memory; its addresses are made from `staged`.
  planned.plan = PlanAttention(shape, rows.view(), staged, staged, staged);
  EXPECT_LE(planned.plan.staged_bytes, bytes);
  return planned;
}

AttentionPlanShape Shape8B() {
  return {.num_q_heads = 32,
          .num_kv_heads = 8,
          .group_size = 4,
          .head_dim = 128,
          .page_tokens = kPlanPage,
          .max_rows = 64,
          .max_tokens = 512};
}

Rows RandomRows(uint64_t seed) {
  Rng rng(seed);
  Rows rows;
  const uint32_t count = 1 + rng.Below(40);
  for (uint32_t i = 0; i < count; ++i) {
    const int32_t tokens = rng.Below(4) == 0 ? static_cast<int32_t>(rng.Below(60)) : 1;
    const int32_t before = static_cast<int32_t>(rng.Below(rng.Below(5) == 0 ? 6000 : 300));
    rows.Add(tokens, tokens + before);
  }
  return rows;
}

std::vector<AttentionPlanShape> Shapes() {
  std::vector<AttentionPlanShape> shapes;
  for (const SplitRule split : {SplitRule::kBalanced, SplitRule::kByPosition}) {
    AttentionPlanShape shape = Shape8B();
    shape.split = split;
    shapes.push_back(shape);
    shape.window = 100;
    shapes.push_back(shape);
    shape.window = 0;
    shape.cache = DType::kF8E4M3;
    shape.head_dim = 80;
    shape.num_kv_heads = 1;
    shape.num_q_heads = 14;
    shape.group_size = 14;
    shapes.push_back(shape);
  }
  return shapes;
}

TEST(AttentionPlanTest, EveryTokenMeetsEveryPageItSeesOnce) {
  for (const AttentionPlanShape& shape : Shapes()) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Rows rows = RandomRows(seed);
      const Planned planned = Plan(shape, rows);
      // (token, kv head) → pages, in order of items.
      std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> seen;
      for (const DecodeItem& item : planned.items()) {
        EXPECT_EQ(item.tokens_before, std::min(rows.TokensBefore(item.token), kManyTokensBefore));
        for (int32_t t = item.token; t < item.token + item.num_tokens; ++t) {
          auto& pages = seen[{t, item.kv_head}];
          for (int32_t p = item.page_begin; p < item.page_end; ++p) pages.push_back(p);
        }
      }
      for (const PrefillTile& tile :
           std::vector<PrefillTile>(planned.plan.prefill_tiles,
                                    planned.plan.prefill_tiles + planned.plan.num_prefill_tiles)) {
        for (int32_t t = tile.token; t < tile.token + tile.num_tokens; ++t) {
          EXPECT_TRUE((seen.insert({{t, -1}, {}}).second)) << t;
        }
      }
      for (size_t r = 0; r < rows.kv_len.size(); ++r) {
        for (int32_t t = rows.q_begin[r]; t < rows.q_begin[r + 1]; ++t) {
          if (seen.count({t, -1}) != 0) continue;
          const int32_t position = rows.kv_len[r] - (rows.q_begin[r + 1] - t);
          const int32_t first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
          for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
            const std::vector<int32_t>& pages = seen[{t, head}];
            ASSERT_FALSE(pages.empty()) << t;
            EXPECT_LE(pages.front(), first / kPlanPage);
            EXPECT_GE(pages.back(), position / kPlanPage);
            for (size_t i = 1; i < pages.size(); ++i) ASSERT_EQ(pages[i], pages[i - 1] + 1);
          }
        }
      }
    }
  }
}

TEST(AttentionPlanTest, PiecesOfARowAndHeadFillSlotsOfTheirOwn) {
  for (const AttentionPlanShape& shape : Shapes()) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<DecodeItem> items = Plan(shape, RandomRows(seed)).items();
      const int64_t slots = PlanScratchBytes(shape) / (4 * (16 * (shape.head_dim + 2) + 1));
      int32_t next_slot = 0;
      for (size_t i = 0; i < items.size();) {
        if (items[i].partial < 0) {
          ++i;
          continue;
        }
        ASSERT_GT(items[i].num_pieces, 1);
        for (int32_t piece = 0; piece < items[i].num_pieces; ++piece) {
          const DecodeItem& item = items[i + static_cast<size_t>(piece)];
          EXPECT_EQ(item.partial, next_slot++);
          EXPECT_EQ(item.piece, piece);
          EXPECT_EQ(item.token, items[i].token);
          EXPECT_EQ(item.kv_head, items[i].kv_head);
        }
        i += items[i].num_pieces;
      }
      EXPECT_LE(next_slot, slots);
    }
  }
}

// The pages and stretches of every block.
std::vector<int64_t> BlockWork(const Planned& planned) {
  const std::vector<DecodeItem> items = planned.items();
  std::vector<int64_t> work;
  for (int32_t b = 0; b < planned.plan.num_decode_blocks; ++b) {
    work.push_back(0);
    for (int32_t i = planned.plan.decode_begin[b]; i < planned.plan.decode_begin[b + 1]; ++i) {
      const DecodeItem& item = items[static_cast<size_t>(i)];
      work.back() += item.page_end - item.page_begin + 1;
    }
  }
  return work;
}

TEST(AttentionPlanTest, BlocksGetEqualSharesOfLongSequences) {
  Rows rows;
  for (int i = 0; i < 7; ++i) rows.Add(1, 9000 + 777 * i);
  const std::vector<int64_t> work = BlockWork(Plan(Shape8B(), rows));
  const int64_t most = std::ranges::max(work);
  // The last block has what is left.
  const auto last = work.end() - 1;
  EXPECT_LE(most - *std::min_element(work.begin(), last), 2);
  EXPECT_LE(*last, most);
}

// Padded rows have one page each. Counted by pages alone, a block would get hundreds of them.
TEST(AttentionPlanTest, ShortItemsCountForMoreThanTheirPages) {
  for (const SplitRule split : {SplitRule::kBalanced, SplitRule::kByPosition}) {
    AttentionPlanShape shape = Shape8B();
    shape.split = split;
    shape.max_rows = 512;
    for (const int32_t length : {60, 500, 1500, 9000}) {
      Rows rows;
      for (int i = 0; i < 400; ++i) rows.Add(1, length);
      for (int i = 0; i < 80; ++i) rows.Add(1, 1);
      const std::vector<int64_t> work = BlockWork(Plan(shape, rows));
      const auto mean =
          std::accumulate(work.begin(), work.end(), int64_t{0}) / static_cast<int64_t>(work.size());
      // By position a block ends where a stretch does, of at most so many pages.
      const int64_t stretch = split == SplitRule::kBalanced ? 2 : 32;
      EXPECT_LE(std::ranges::max(work), mean + 4 + stretch) << length;
    }
  }
}

TEST(AttentionPlanTest, ByPositionASequenceIsCutAlikeInAnyBatch) {
  AttentionPlanShape shape = Shape8B();
  shape.split = SplitRule::kByPosition;
  for (const int32_t length : {1, 600, 3000, 40000}) {
    Rows alone, crowd = RandomRows(3);
    alone.Add(1, length);
    const int32_t token = crowd.q_begin.back();
    crowd.Add(1, length);
    const auto cuts = [&](const Rows& rows, int32_t of) {
      std::vector<std::pair<int32_t, int32_t>> result;
      for (const DecodeItem& item : Plan(shape, rows).items()) {
        if (item.token == of) result.emplace_back(item.page_begin, item.page_end);
      }
      return result;
    };
    EXPECT_EQ(cuts(alone, 0), cuts(crowd, token)) << length;
  }
}

TEST(AttentionPlanTest, ByPositionPiecesAreAlikeToAPage) {
  AttentionPlanShape shape = Shape8B();
  shape.split = SplitRule::kByPosition;
  for (const int32_t window : {0, 3000}) {
    shape.window = window;
    for (int32_t pages = 1; pages < 700; ++pages) {
      Rows rows;
      rows.Add(1, pages * kPlanPage - 3);
      int32_t fewest = INT32_MAX, most = 0, pieces = 0;
      for (const DecodeItem& item : Plan(shape, rows).items()) {
        if (item.kv_head != 0) continue;
        fewest = std::min(fewest, item.page_end - item.page_begin);
        most = std::max(most, item.page_end - item.page_begin);
        ++pieces;
      }
      EXPECT_LE(pieces, 16) << pages;
      if (pieces == 1) continue;
      EXPECT_GE(fewest, 16) << pages;
      EXPECT_LE(most - fewest, 1) << pages;
    }
  }
}

TEST(AttentionPlanTest, ByPositionPromptsArePrefillHoweverShortTheirChunks) {
  AttentionPlanShape shape = Shape8B();
  Rows rows;
  for (const int32_t tokens : {1, 2, 1, 300}) rows.Add(tokens, 500);
  const std::vector<uint8_t> is_prompt = {1, 1, 0, 1};
  const auto plan = [&](SplitRule split) {
    shape.split = split;
    alignas(16) static std::byte device[16];
    std::vector<std::byte> staged(static_cast<size_t>(PlanStagedBytes(shape, 4, 304)));
    HostRows host = rows.view();
    host.is_prompt = is_prompt;
    return PlanAttention(shape, host, staged.data(), device, device);
  };
  const int32_t tiles_of_300 = CeilDiv(300, kPrefillQueries / shape.group_size);
  EXPECT_EQ(plan(SplitRule::kByPosition).num_prefill_tiles, tiles_of_300 + 2);
  EXPECT_EQ(plan(SplitRule::kBalanced).num_prefill_tiles, tiles_of_300);
}

TEST(AttentionPlanTest, PairsAreNeighboursOfARowAndAnOddTileIsThereTwice) {
  Rows rows;
  rows.Add(33 * 32 - 5, 2000);  // 33 tiles of 32 tokens
  rows.Add(64, 64);
  const Planned planned = Plan(Shape8B(), rows);
  ASSERT_TRUE(planned.plan.prefill_pairs);
  ASSERT_EQ(planned.plan.num_prefill_tiles, 34 + 2);
  std::map<int32_t, int> times;
  for (int32_t i = 0; i < planned.plan.num_prefill_tiles; i += 2) {
    const PrefillTile &a = planned.plan.prefill_tiles[i], &b = planned.plan.prefill_tiles[i + 1];
    EXPECT_EQ(a.table_row, b.table_row);
    EXPECT_TRUE(b.token == a.token + a.num_tokens || b.token == a.token);
    ++times[a.token], ++times[b.token];
  }
  EXPECT_EQ(times.size(), 33u + 2u);
  EXPECT_EQ(times[32 * 32], 2);

  rows.Add(5, 100);  // too many odd ones
  rows.Add(5, 100);
  rows.Add(5, 100);
  EXPECT_FALSE(Plan(Shape8B(), rows).plan.prefill_pairs);
  AttentionPlanShape window = Shape8B();
  window.window = 100;
  EXPECT_FALSE(Plan(window, Rows(rows)).plan.prefill_pairs);
}

// Processors of 132 that prefill takes beside decode.
int32_t Beside(AttentionPlanShape shape, int decodes, int32_t length, int32_t chunk,
               int32_t position) {
  Rows rows;
  for (int i = 0; i < decodes; ++i) rows.Add(1, length);
  if (chunk > 0) rows.Add(chunk, position + chunk);
  shape.max_rows = 512;
  shape.max_tokens = 16384;
  const AttentionPlan plan = Plan(shape, rows).plan;
  const int32_t decode = plan.num_decode_blocks / 2;
  EXPECT_TRUE(decode == 0 || plan.beside == (decode < shape.num_processors));
  EXPECT_TRUE(plan.prefill_parts == 1 || (!plan.beside && !plan.prefill_pairs));
  if (!plan.beside) {
    EXPECT_EQ(plan.prefill_processors, shape.num_processors);
    return 0;
  }
  EXPECT_EQ(plan.prefill_processors + decode, shape.num_processors);
  EXPECT_TRUE(!plan.prefill_pairs || plan.prefill_processors % 2 == 0);
  return plan.prefill_processors;
}

TEST(AttentionPlanTest, PrefillTakesTheProcessorsThatDecodeCanSpare) {
  for (const SplitRule split : {SplitRule::kBalanced, SplitRule::kByPosition}) {
    AttentionPlanShape shape = Shape8B();
    shape.split = split;
    // Decode keeps enough of them to saturate the memory; a deeper chunk takes more.
    const int32_t shallow = Beside(shape, 64, 1152, 256, 128);
    EXPECT_GE(shallow, 8);
    EXPECT_GT(Beside(shape, 64, 1152, 256, 768), shallow);
    EXPECT_LE(Beside(shape, 64, 1152, 256, 768), 34);
    EXPECT_GT(Beside(shape, 64, 1152, 320, 768), 0);
    EXPECT_LE(Beside(shape, 64, 8192, 256, 4096), 34);
    // Nothing to share.
    EXPECT_EQ(Beside(shape, 64, 1152, 0, 0), 0);
    EXPECT_EQ(Beside(shape, 0, 0, 256, 1152), 0);
    // Answers too short to hide a prompt behind.
    EXPECT_EQ(Beside(shape, 4, 100, 8192, 0), 0);
    EXPECT_EQ(Beside(shape, 1, 30, 256, 7000), 0);
  }
}

TEST(AttentionPlanTest, ProcessorsAreSharedWhateverTheRows) {
  Rng rng(5);
  for (AttentionPlanShape shape : Shapes()) {
    for (int i = 0; i < 200; ++i) {
      shape.num_processors = 1 + static_cast<int32_t>(rng.Below(132));
      const auto length = static_cast<int32_t>(1 + rng.Below(20000));
      Beside(shape, static_cast<int>(rng.Below(100)), length, static_cast<int32_t>(rng.Below(2000)),
             static_cast<int32_t>(rng.Below(9000)));
    }
  }
}

TEST(AttentionPlanTest, FewTilesOfManyKeysAreDivided) {
  const auto plan = [](const AttentionPlanShape& shape, std::vector<std::pair<int, int>> rows) {
    Rows all;
    for (const auto& [tokens, length] : rows) all.Add(tokens, length);
    return Plan(shape, all).plan;
  };
  const auto parts = [&](const AttentionPlanShape& shape, int tokens, int length) {
    const AttentionPlan made = plan(shape, {{tokens, length}, {1, 100}});
    EXPECT_TRUE(made.prefill_parts == 1 || !made.prefill_pairs);
    EXPECT_EQ(made.num_prefill_tiles, CeilDiv(tokens, 32));
    return made.prefill_parts;
  };
  AttentionPlanShape shape = Shape8B();  // 8 kv heads, 32 tokens a tile
  EXPECT_EQ(parts(shape, 64, 1024), 4);
  EXPECT_EQ(parts(shape, 128, 1024), 2);  // no 32 clusters of four have room
  EXPECT_EQ(parts(shape, 128, 200), 1);   // too few keys
  EXPECT_EQ(parts(shape, 160, 5000), 2);
  EXPECT_EQ(parts(shape, 256, 5000), 2);
  EXPECT_EQ(parts(shape, 256, 300), 1);
  EXPECT_EQ(parts(shape, 320, 5000), 1);   // of 80 tiles in halves 14 would have to wait
  EXPECT_EQ(parts(shape, 320, 20000), 4);  // three rounds of quarters
  shape.window = 100;
  EXPECT_EQ(parts(shape, 128, 5000), 1);
  shape.window = 0;
  shape.split = SplitRule::kByPosition;  // sums may not depend on how many tiles there are
  EXPECT_EQ(parts(shape, 128, 5000), 1);

  // A deep chunk takes longer than the answers: all multiprocessors, one after the other.
  std::vector<std::pair<int, int>> rows(64, {1, 1152});
  rows.emplace_back(256, 8192);
  const AttentionPlan deep = plan(Shape8B(), rows);
  EXPECT_EQ(deep.prefill_parts, 2);
  EXPECT_FALSE(deep.beside);
  rows.back() = {256, 512};
  const AttentionPlan shallow = plan(Shape8B(), rows);
  EXPECT_EQ(shallow.prefill_parts, 1);
  EXPECT_TRUE(shallow.beside);
}

TEST(AttentionPlanTest, AShortRowAloneIsNotDivided) {
  const auto is_short = [](const AttentionPlanShape& shape, std::vector<std::pair<int, int>> rows) {
    Rows all;
    for (const auto& [tokens, length] : rows) all.Add(tokens, length);
    return Plan(shape, all).plan.short_row;
  };
  AttentionPlanShape shape = Shape8B();
  EXPECT_TRUE(is_short(shape, {{1, 1}}));
  EXPECT_TRUE(is_short(shape, {{1, kShortRowKeys}}));
  EXPECT_TRUE(is_short(shape, {{4, 100}}));   // 16 queries of a kv head
  EXPECT_FALSE(is_short(shape, {{5, 100}}));  // prefill
  EXPECT_FALSE(is_short(shape, {{1, kShortRowKeys + 1}}));
  EXPECT_FALSE(is_short(shape, {{1, 100}, {1, 100}}));
  shape.window = 100;  // a graph of long rows serves all cache groups
  EXPECT_FALSE(is_short(shape, {{1, kShortRowKeys + 1}}));
  shape = Shape8B();
  shape.split = SplitRule::kByPosition;  // sums would depend on there being other rows
  EXPECT_FALSE(is_short(shape, {{1, 100}}));
  shape = Shape8B();
  shape.head_dim = 80;  // not eight slices of whole fours
  EXPECT_FALSE(is_short(shape, {{1, 100}}));
  shape = Shape8B();
  shape.num_q_heads = shape.num_kv_heads = 32;  // more clusters than fit at a time
  shape.group_size = 1;
  EXPECT_FALSE(is_short(shape, {{1, 100}}));
}

TEST(AttentionPlanTest, DecodeGridsAndAddressesDoNotDependOnLengths) {
  const AttentionPlanShape shape = Shape8B();
  alignas(16) static std::byte device[16];
  std::vector<std::byte> staged(static_cast<size_t>(PlanStagedBytes(shape, 5, 5)));
  AttentionPlan first;
  for (const int32_t length : {0, 1, 100, 30000}) {
    Rows rows;
    for (int i = 0; i < 5; ++i) rows.Add(1, length);
    const AttentionPlan plan = PlanAttention(shape, rows.view(), staged.data(), device, device);
    if (length == 0) first = plan;
    EXPECT_EQ(plan.num_decode_blocks, first.num_decode_blocks);
    EXPECT_EQ(plan.decode_queries, first.decode_queries);
    EXPECT_EQ(plan.decode_items, first.decode_items);
    EXPECT_EQ(plan.num_prefill_tiles, 0);
  }
}

}  // namespace
}  // namespace hayate::ops
