#include "exec/rank_worker.h"

#include <gtest/gtest.h>

#include "base/thread.h"

namespace hayate::exec {
namespace {

constexpr int32_t kVocab = 8;
constexpr StepLimits kLimits = {.max_rows = 2,
                                .max_tokens = 4,
                                .max_logits = 2,
                                .page_tokens = 4,
                                .max_slot_pages = 2,
                                .num_groups = 1};

// Prefers the token after the one that it reads; every rank writes its half of the vocabulary.
class CountingModel final : public models::Model {
 public:
  explicit CountingModel(int rank) : rank_(rank) {
    facts_.vocab_size = kVocab;
    layout_ = {.page_tokens = kLimits.page_tokens};
    layout_.groups.push_back({.name = "kv", .page_bytes = 64});
  }
  const models::ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return layout_; }
  int64_t page_bytes(int) const override { return 64; }
  int64_t workspace_bytes(int64_t, int64_t) const override { return 1024; }
  int64_t weight_bytes() const override { return 0; }
  void Forward(const models::ForwardBatch& batch, const models::ForwardContext&) override {
    for (int32_t i = 0; i < batch.num_logits; ++i) {
      const int32_t next = (batch.token_ids[batch.logits_index[i]] + 1) % kVocab;
      for (int32_t v = rank_ * kVocab / 2; v < (rank_ + 1) * kVocab / 2; ++v) {
        batch.logits[i * kVocab + v] = v == next ? 1.0f : 0.0f;
      }
    }
  }

 private:
  const int rank_;
  models::ModelFacts facts_;
  CacheLayout layout_;
};

StepPlan PlanOfOneRow() {
  StepPlan plan;
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  plan.starts.push_back({.slot = {0}, .sampling = greedy});
  plan.page_updates = {{{0}, 0, 0, {1}}};
  plan.tokens = {2};
  plan.rows = {{.slot = {0}, .begin = 0, .end = 1, .first_token = 0, .samples = true}};
  plan.num_tokens = 1;
  return plan;
}

// Rank 0 of two, on the test's own thread.
class HalfAGroup : public ::testing::Test {
 protected:
  HalfAGroup() {
    const std::vector<int32_t> pool_pages = {3};
    worker_ = RankWorker::Create(*device_, model_, *groups_[0], kLimits, pool_pages,
                                 {.logits = logits_, .last_tokens = last_tokens_})
                  .value();
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  std::vector<std::unique_ptr<comm::Group>> groups_ = comm::MakeLocalGroup(2).value();
  CountingModel model_{0};
  float logits_[2 * kVocab] = {};
  int32_t last_tokens_[2] = {-1, -1};
  std::unique_ptr<RankWorker> worker_;
};

TEST_F(HalfAGroup, APoisonedGroupEndsTheStepWithoutDrawing) {
  groups_[1]->Poison();  // the other rank never comes
  StepResult result;
  result.rows.resize(1);
  worker_->Run(PlanOfOneRow(), result);
  EXPECT_TRUE(result.rows[0].tokens.empty());
  EXPECT_EQ(last_tokens_[0], -1);
}

TEST_F(HalfAGroup, DrawsOnceBothRanksWroteTheirLogits) {
  CountingModel other(1);
  const std::vector<int32_t> pool_pages = {3};
  StepResult result;
  result.rows.resize(1);
  NamedThread second("rank-1", [&] {
    const auto device = MakeCpuDevice(1);
    auto worker = RankWorker::Create(*device, other, *groups_[1], kLimits, pool_pages,
                                     {.logits = logits_, .last_tokens = last_tokens_})
                      .value();
    worker->Run(PlanOfOneRow(), result);
  });
  worker_->Run(PlanOfOneRow(), result);
  second.Join();
  EXPECT_EQ(result.rows[0].tokens, std::vector<TokenId>{3});
  EXPECT_EQ(last_tokens_[0], 3);
}

}  // namespace
}  // namespace hayate::exec
