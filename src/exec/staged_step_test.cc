#include "exec/staged_step.h"

#include <gtest/gtest.h>

namespace hayate::exec {
namespace {

constexpr StepLimits kLimits = {.max_rows = 4,
                                .max_tokens = 16,
                                .max_logits = 8,
                                .page_tokens = 4,
                                .max_slot_pages = 5,
                                .num_groups = 2};

SlotTables Tables() { return SlotTables(kLimits.num_groups, kLimits.max_rows, 5); }

template <typename T>
std::vector<T> Values(const T* begin, size_t count) {
  return std::vector<T>(begin, begin + count);
}

TEST(SlotTables, AStartForgetsTheSlotInEveryGroupBeforeTheUpdates) {
  SlotTables tables = Tables();
  StepPlan plan;
  plan.page_updates = {{{1}, 0, 0, {10}}, {{1}, 0, 1, {11}}, {{1}, 1, 1, {21}}, {{2}, 0, 0, {12}}};
  tables.Apply(plan);
  EXPECT_EQ(tables.Pages(0, {1}, 2)[1], 11);
  plan.Clear();
  plan.starts.push_back({.slot = {1}});
  plan.page_updates = {{{1}, 0, 0, {15}}};
  tables.Apply(plan);
  EXPECT_EQ(tables.Pages(0, {1}, 5)[0], 15);
  EXPECT_EQ(tables.Pages(0, {1}, 5)[1], kNoPage.value);
  EXPECT_EQ(tables.Pages(1, {1}, 5)[1], kNoPage.value);
  EXPECT_EQ(tables.Pages(0, {2}, 1)[0], 12);  // the neighbour keeps its own
}

TEST(SlotTables, AnUpdateWithoutAPageDropsTheEntry) {
  SlotTables tables = Tables();
  StepPlan plan;
  plan.page_updates = {{{0}, 1, 0, {7}}, {{0}, 1, 0, kNoPage}};
  tables.Apply(plan);
  EXPECT_EQ(tables.Pages(1, {0}, 1)[0], kNoPage.value);
}

// A chunk that scores, a late decode row, and a chunk that ends its prompt.
StepPlan MixedPlan() {
  StepPlan plan;
  plan.tokens = {50, 51, 52, 53, 54, 70, 71};
  plan.rows = {{.slot = {2},
                .begin = 4,
                .end = 8,
                .first_token = 0,
                .samples = false,
                .score_begin = 5,
                .num_scored = 3},
               {.slot = {0}, .begin = 9, .end = 10, .first_token = kLateToken, .samples = true},
               {.slot = {3}, .begin = 0, .end = 2, .first_token = 5, .samples = true}};
  plan.num_tokens = 7;
  plan.page_updates = {{{2}, 0, 0, {1}}, {{2}, 0, 1, {2}}, {{0}, 0, 0, {3}}, {{0}, 0, 1, {4}},
                       {{0}, 0, 2, {5}}, {{3}, 0, 0, {6}}, {{0}, 1, 2, {9}}};
  return plan;
}

TEST(StagedStep, LaysRowsBackToBackAndReadsLateTokensFromTheSlot) {
  const StepPlan plan = MixedPlan();
  SlotTables tables = Tables();
  tables.Apply(plan);
  StagedStep staged(kLimits);
  const int32_t last_tokens[] = {99, 0, 0, 0};
  float logits = 0;
  staged.Build(plan, tables, last_tokens, &logits);
  const models::ForwardBatch& batch = staged.batch();
  ASSERT_EQ(batch.num_tokens, 7);
  EXPECT_EQ(Values(batch.token_ids, 7), (std::vector<int32_t>{50, 51, 52, 53, 99, 70, 71}));
  EXPECT_EQ(Values(batch.positions, 7), (std::vector<int32_t>{4, 5, 6, 7, 9, 0, 1}));
  EXPECT_EQ(batch.logits, &logits);
  ASSERT_EQ(batch.rows.size(), 2u);
  for (const ops::AttentionRows& rows : batch.rows) {
    ASSERT_EQ(rows.num_rows, 3);
    EXPECT_EQ(Values(rows.q_begin, 4), (std::vector<int32_t>{0, 4, 5, 7}));
    EXPECT_EQ(Values(rows.kv_len, 3), (std::vector<int32_t>{8, 10, 2}));
    EXPECT_EQ(rows.page_table_stride, 3);
  }
  const int32_t* full = batch.rows[0].page_table;
  EXPECT_EQ(Values(full, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Values(full + 3, 3), (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(full[6], 6);
  EXPECT_EQ(Values(batch.rows[1].page_table + 3, 3), (std::vector<int32_t>{-1, -1, 9}));
}

TEST(StagedStep, MapsSampledAndScoredRowsToLogits) {
  const StepPlan plan = MixedPlan();
  SlotTables tables = Tables();
  tables.Apply(plan);
  StagedStep staged(kLimits);
  const int32_t last_tokens[4] = {};
  staged.Build(plan, tables, last_tokens, nullptr);
  ASSERT_EQ(staged.batch().num_logits, 5);
  EXPECT_EQ(Values(staged.batch().logits_index, 5), (std::vector<int32_t>{1, 2, 3, 4, 6}));
  const RowLogits& scored = staged.logits_of(0);
  EXPECT_EQ(scored.sample, -1);
  EXPECT_EQ(scored.score_begin, 0);
  EXPECT_EQ(scored.score_count, 3);
  // Position 5 holds 51 and is followed by 52; the last scored one by the token after the row.
  EXPECT_EQ(plan.tokens[static_cast<size_t>(scored.score_token)], 52);
  EXPECT_EQ(plan.tokens[static_cast<size_t>(scored.score_token + 2)], 54);
  EXPECT_EQ(staged.logits_of(1).sample, 3);
  EXPECT_EQ(staged.logits_of(1).score_count, 0);
  EXPECT_EQ(staged.logits_of(2).sample, 4);
}

TEST(StagedStep, AStepForgetsTheOneBefore) {
  SlotTables tables = Tables();
  StagedStep staged(kLimits);
  const int32_t last_tokens[4] = {};
  tables.Apply(MixedPlan());
  staged.Build(MixedPlan(), tables, last_tokens, nullptr);
  StepPlan plan;
  plan.tokens = {8};
  plan.rows = {{.slot = {3}, .begin = 2, .end = 3, .first_token = 0, .samples = true}};
  plan.num_tokens = 1;
  staged.Build(plan, tables, last_tokens, nullptr);
  EXPECT_EQ(staged.batch().num_tokens, 1);
  EXPECT_EQ(staged.batch().num_logits, 1);
  EXPECT_EQ(staged.logits_of(0).sample, 0);
  EXPECT_EQ(staged.batch().rows[0].num_rows, 1);
  EXPECT_EQ(staged.batch().rows[0].page_table[0], 6);
}

}  // namespace
}  // namespace hayate::exec
