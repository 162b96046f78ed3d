#include "exec/queued_worker.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/align.h"
#include "base/rng.h"
#include "exec/rank_worker.h"

namespace hayate::exec {
namespace {

constexpr int32_t kVocab = 40;
constexpr int32_t kHidden = 3;
constexpr int32_t kFeatures = 2;
constexpr int32_t kGuesses = 2;
constexpr StepLimits kLimits = {.max_rows = 5,
                                .max_tokens = 24,
                                .max_logits = 24,
                                .page_tokens = 4,
                                .max_slot_pages = 6,
                                .num_groups = 2};
constexpr int32_t kPoolPages = 1 + kLimits.max_rows * kLimits.max_slot_pages;

// Keeps its tokens in the pages of both groups and derives a row's logits from all it finds there
// again, so a wrong page, position or token shows in the results.
class RememberingModel final : public models::Model {
 public:
  RememberingModel() {
    facts_.vocab_size = kVocab;
    facts_.hidden_size = kHidden;
    layout_ = {.page_tokens = kLimits.page_tokens};
    for (int g = 0; g < kLimits.num_groups; ++g) {
      layout_.groups.push_back({.name = "kv", .page_bytes = page_bytes(g)});
    }
  }
  const models::ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return layout_; }
  int64_t page_bytes(int) const override { return kLimits.page_tokens * sizeof(int32_t); }
  int64_t workspace_bytes(int64_t, int64_t) const override { return 1024; }
  int64_t weight_bytes() const override { return 0; }
  bool gives_hidden() const override { return true; }
  int64_t feature_width() const override { return kFeatures; }

  std::vector<int32_t> exchanged_rows;  // of the last pass, by rank

  void Forward(const models::ForwardBatch& batch, const models::ForwardContext& context) override {
    if (context.exchange != nullptr) {
      const auto rank = static_cast<size_t>(context.exchange->rank());
      EXPECT_EQ(batch.tokens_per_rank[rank], batch.num_tokens);
      EXPECT_EQ(batch.logits_per_rank[rank], batch.num_logits);
      exchanged_rows.assign(batch.tokens_per_rank.begin(), batch.tokens_per_rank.end());
      // Stands for a choice of each token.
      context.expert_counts[0] += std::min(batch.num_tokens, *context.num_unpadded);
    }
    std::vector<uint64_t> digests;  // of every token's context
    for (int32_t r = 0; r < batch.rows[0].num_rows; ++r) {
      const int32_t begin = batch.rows[0].q_begin[r], end = batch.rows[0].q_begin[r + 1];
      EXPECT_EQ(batch.positions[end - 1] + 1, batch.rows[0].kv_len[r]);
      for (int32_t t = begin; t < end; ++t) {
        uint64_t digest = 0;
        for (int g = 0; g < kLimits.num_groups; ++g) {
          *Cell(batch, context, g, r, batch.positions[t]) = batch.token_ids[t] + g;
          for (int32_t p = 0; p <= batch.positions[t]; ++p) {
            digest = digest * 31 + static_cast<uint64_t>(*Cell(batch, context, g, r, p));
          }
        }
        digests.push_back(digest);
        if (batch.features == nullptr) continue;
        for (int32_t n = 0; n < kFeatures; ++n) {
          batch.features[t * kFeatures + n] = static_cast<float>((digest >> (8 * n)) % 256);
        }
      }
    }
    for (int32_t i = 0; i < batch.num_logits; ++i) {
      Rng rng(digests[static_cast<size_t>(batch.logits_index[i])]);
      for (int32_t v = 0; v < kVocab; ++v) batch.logits[i * kVocab + v] = 3 * rng.NextNormal();
      if (batch.hidden == nullptr) continue;
      for (int32_t n = 0; n < kHidden; ++n) batch.hidden[i * kHidden + n] = rng.NextNormal();
    }
  }

 private:
  static int32_t* Cell(const models::ForwardBatch& batch, const models::ForwardContext& context,
                       int group, int32_t row, int32_t position) {
    const auto g = static_cast<size_t>(group);
    const int32_t page = batch.rows[g].PagesOf(row)[position / kLimits.page_tokens];
    EXPECT_GE(page, 0);
    return reinterpret_cast<int32_t*>(context.pools[g]) + page * kLimits.page_tokens +
           position % kLimits.page_tokens;
  }

  models::ModelFacts facts_;
  CacheLayout layout_;
};

// Keeps of every committed token what a drafter is given of it, and derives its logits from all
// that it finds again.
class RememberingDrafter final : public models::DraftModel {
 public:
  RememberingDrafter() { groups_ = {{.name = "draft", .page_bytes = page_bytes(0)}}; }

  const std::vector<CacheGroup>& cache_groups() const override { return groups_; }
  int64_t page_bytes(int) const override { return kLimits.page_tokens * sizeof(uint64_t); }
  int32_t max_drafts() const override { return kGuesses; }
  bool has_confidence() const override { return true; }
  int64_t workspace_bytes(int64_t, int64_t) const override { return 1024; }
  int64_t weight_bytes() const override { return 0; }

  void Advance(const models::DraftBatch& batch, const models::ForwardContext& context) override {
    digests_.clear();
    const ops::AttentionRows& rows = batch.rows[0];
    int32_t next_proposal = 0;
    for (int32_t r = 0; r < rows.num_rows; ++r) {
      for (int32_t t = rows.q_begin[r]; t < rows.q_begin[r + 1]; ++t) {
        uint64_t entry = static_cast<uint64_t>(batch.token_ids[t] * kVocab + batch.next_ids[t]);
        for (int32_t n = 0; n < kFeatures; ++n) {
          entry = entry * 257 +
                  static_cast<uint64_t>(batch.features[batch.feature_rows[t] * kFeatures + n]);
        }
        *Cell(rows, context, r, batch.positions[t]) = entry;
      }
      EXPECT_EQ(batch.positions[rows.q_begin[r + 1] - 1] + 1, rows.kv_len[r]);
      if (next_proposal == batch.num_proposals || batch.proposal_rows[next_proposal] != r) continue;
      ++next_proposal;
      uint64_t digest = 0;
      for (int32_t p = 0; p < rows.kv_len[r]; ++p)
        digest = digest * 31 + *Cell(rows, context, r, p);
      digests_.push_back(digest);
    }
    EXPECT_EQ(next_proposal, batch.num_proposals);
  }
  void Next(int32_t i, const int32_t* tokens, float* logits, float* confidences,
            const models::ForwardContext&) override {
    for (size_t n = 0; n < digests_.size(); ++n) {
      digests_[n] = digests_[n] * 31 + static_cast<uint64_t>(tokens[n] + i);
      Rng rng(digests_[n]);
      for (size_t v = 0; v < kVocab; ++v) logits[n * kVocab + v] = 3 * rng.NextNormal();
      confidences[n] = static_cast<float>(digests_[n] % 97);
    }
  }

 private:
  static uint64_t* Cell(const ops::AttentionRows& rows, const models::ForwardContext& context,
                        int32_t row, int32_t position) {
    const int32_t page = rows.PagesOf(row)[position / kLimits.page_tokens];
    EXPECT_GT(page, 0);
    return reinterpret_cast<uint64_t*>(context.pools[0]) + page * kLimits.page_tokens +
           position % kLimits.page_tokens;
  }

  std::vector<CacheGroup> groups_;
  std::vector<uint64_t> digests_;  // [N]
};

// Plans of slots that start, are fed their prompts in chunks, and decode with late tokens or verify
// drafts.
class RandomPlans {
 public:
  // With a drafter its group follows the model's, and rows ask for guesses.
  RandomPlans(uint64_t seed, bool drafts) : drafts_(drafts), rng_(seed), slots_(kLimits.max_rows) {}

  StepPlan Next() {
    StepPlan plan;
    plan.step = step_++;
    for (int32_t s = 0; s < kLimits.max_rows; ++s) {
      Slot& slot = slots_[static_cast<size_t>(s)];
      if (rng_.Below(4) == 0) continue;  // sits this step out
      if (slot.length == slot.end) Start(s, plan);
      AddRow(s, plan);
    }
    WriteMasks(plan);
    return plan;
  }

 private:
  struct Slot {
    int32_t length = 0, prompt = 0, end = 0;  // positions computed, of the prompt, in all
    bool scores = false;
    bool has_penalties = false;
    bool verified = false;  // by the last row: the next one brings its tokens along
  };

  void Start(int32_t s, StepPlan& plan) {
    Slot& slot = slots_[static_cast<size_t>(s)];
    constexpr int32_t kLongest = kLimits.max_slot_pages * kLimits.page_tokens;
    slot = {.prompt = 1 + static_cast<int32_t>(rng_.Below(12)), .scores = rng_.Below(3) == 0};
    slot.end = slot.prompt + static_cast<int32_t>(rng_.Below(kLongest - 12 - kGuesses));
    SlotStart start{.slot = {s}, .prompt_length = slot.prompt};
    start.sampling.temperature = rng_.Below(2) == 0 ? 0.0f : 0.9f;
    start.sampling.top_k = static_cast<int32_t>(rng_.Below(6));
    slot.has_penalties = rng_.Below(2) == 0;
    start.sampling.frequency_penalty = slot.has_penalties ? 0.7f : 0.0f;
    start.sampling.seed = rng_.NextU64();
    start.sampling.min_new_tokens = static_cast<int32_t>(rng_.Below(3));
    start.sampling.stop_token_ids = {1, 2, 3};
    if (rng_.Below(2) == 0) start.sampling.logit_bias = {{4, 2.5f}, {9, -1.0f}};
    start.logprobs.enabled = rng_.Below(2) == 0;
    start.logprobs.num_top = static_cast<int32_t>(rng_.Below(4));
    start.logprobs.hidden = rng_.Below(4) == 0;
    for (uint32_t n = rng_.Below(4); n > 0; --n) {
      start.logprobs.token_ids.push_back(static_cast<TokenId>(rng_.Below(kVocab)));
    }
    if (rng_.Below(2) == 0) start.outputs = {5, 5, 6};
    plan.starts.push_back(start);
    for (int32_t g = 0; g < kLimits.num_groups + (drafts_ ? 1 : 0); ++g) {
      for (int32_t i = 0; i < kLimits.max_slot_pages; ++i) {
        const int32_t page = 1 + s * kLimits.max_slot_pages + (i + g) % kLimits.max_slot_pages;
        plan.page_updates.push_back({{s}, g, i, {page}});
      }
    }
  }

  // Half of the vocabulary, at random.
  void WriteMasks(StepPlan& plan) {
    if (plan.num_masks == 0) return;
    constexpr size_t kWords = CeilDiv(kVocab, 32);
    const auto masks = std::make_shared<TokenMasks>();
    masks->Reset(static_cast<size_t>(plan.num_masks), kWords);
    for (int32_t m = 0; m < plan.num_masks; ++m) {
      for (uint32_t& word : masks->row(static_cast<size_t>(m))) word = rng_.NextU32() | 1u << 7;
    }
    masks->Publish();
    plan.masks = masks;
  }

  void AddRow(int32_t s, StepPlan& plan) {
    Slot& slot = slots_[static_cast<size_t>(s)];
    StepRow row{.slot = {s}, .begin = slot.length};
    if (slot.length < slot.prompt) {
      row.end = slot.length +
                std::min(slot.prompt - slot.length, 1 + static_cast<int32_t>(rng_.Below(4)));
      row.first_token = static_cast<int32_t>(plan.tokens.size());
      // A scored last position is followed by the token after it.
      row.samples = row.end == slot.prompt;
      row.score_begin = row.begin;
      if (slot.scores) row.num_scored = row.end - row.begin - (row.samples ? 1 : 0);
      for (int32_t p = row.begin; p < row.end + 1; ++p) {
        plan.tokens.push_back(static_cast<TokenId>(rng_.Below(kVocab)));
      }
      row.next_token = plan.tokens.back();
    } else {
      row.end = slot.length + 1;
      row.first_token = kLateToken;
      row.samples = true;
      const int32_t room = std::min(3, slot.end - row.end);
      if (slot.verified || (room > 0 && !slot.has_penalties && rng_.Below(3) == 0)) {
        AddDrafts(room, row, plan);
      }
    }
    slot.length = row.end - row.num_drafts + std::max(0, row.forced_accepts);
    slot.verified = row.num_drafts > 0;
    row.proposes = drafts_ && row.samples && !slot.has_penalties && rng_.Below(3) > 0;
    if (row.samples && rng_.Below(3) == 0) {
      row.mask = plan.num_masks;
      plan.num_masks += row.num_drafts + 1;
    }
    plan.rows.push_back(row);
    plan.num_tokens += row.num_tokens();
  }

  // A known token and up to `most` drafts behind it. How many of them stand must be known to the
  // plans after it: all are refused but for those that stand by force.
  void AddDrafts(int32_t most, StepRow& row, StepPlan& plan) {
    row.num_drafts = rng_.Between(0, most);
    row.forced_accepts = rng_.Between(0, row.num_drafts);
    row.end += row.num_drafts;
    row.first_token = static_cast<int32_t>(plan.tokens.size());
    for (int32_t i = 0; i < row.num_tokens(); ++i) {
      plan.tokens.push_back(static_cast<TokenId>(rng_.Below(kVocab)));
    }
  }

  bool drafts_;
  Rng rng_;
  std::vector<Slot> slots_;
  uint64_t step_ = 0;
};

StepResult ResultFor(const StepPlan& plan) {
  StepResult result;
  for (const StepRow& row : plan.rows) result.rows.push_back({.slot = row.slot});
  return result;
}

void ExpectEqual(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_EQ(a[i].rank, b[i].rank);
    EXPECT_NEAR(a[i].logprob, b[i].logprob, 1e-5);
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (size_t n = 0; n < a[i].top.size(); ++n) EXPECT_EQ(a[i].top[n].first, b[i].top[n].first);
    ASSERT_EQ(a[i].asked.size(), b[i].asked.size());
    for (size_t n = 0; n < a[i].asked.size(); ++n) {
      EXPECT_EQ(a[i].asked[n].first, b[i].asked[n].first);
      EXPECT_NEAR(a[i].asked[n].second, b[i].asked[n].second, 1e-5);
    }
  }
}

void ExpectEqual(const StepResult& a, const StepResult& b) {
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (size_t r = 0; r < a.rows.size(); ++r) {
    EXPECT_EQ(a.rows[r].tokens, b.rows[r].tokens);
    EXPECT_EQ(a.rows[r].bad_logits, b.rows[r].bad_logits);
    EXPECT_EQ(a.rows[r].hidden, b.rows[r].hidden);
    EXPECT_EQ(a.rows[r].drafts, b.rows[r].drafts);
    EXPECT_EQ(a.rows[r].draft_confidences, b.rows[r].draft_confidences);
    ExpectEqual(a.rows[r].logprobs, b.rows[r].logprobs);
    ExpectEqual(a.rows[r].prompt_logprobs, b.rows[r].prompt_logprobs);
  }
}

class QueuedWorkerTest : public ::testing::TestWithParam<std::tuple<int, bool>> {};

// The same plans through the worker that computes at once and, two steps in flight, the queued one;
// padded to graph sizes or not, with a drafter or without.
TEST_P(QueuedWorkerTest, BringsTheResultsOfTheWorkerThatComputesAtOnce) {
  const auto device = MakeCpuDevice(0);
  auto groups = comm::MakeLocalGroup(1).value();
  const auto [graph_rows, drafts] = GetParam();
  StepLimits limits = kLimits;
  limits.num_groups += drafts ? 1 : 0;
  const std::vector<int32_t> pool_pages(static_cast<size_t>(limits.num_groups), kPoolPages);
  int64_t num_guesses = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RememberingModel plain_model, queued_model;
    RememberingDrafter plain_drafter, queued_drafter;
    std::vector<float> logits(static_cast<size_t>(kLimits.max_logits * kVocab));
    std::vector<int32_t> last_tokens(static_cast<size_t>(kLimits.max_rows), 0),
        guesses = last_tokens;
    auto plain =
        RankWorker::Create(
            *device, plain_model, *groups[0], limits, pool_pages,
            {.logits = logits.data(), .last_tokens = last_tokens.data(), .guesses = guesses.data()},
            {}, drafts ? &plain_drafter : nullptr)
            .value();
    auto queued = QueuedWorker::Create(*device, queued_model, *groups[0],
                                       {.limits = limits, .max_graph_rows = graph_rows}, pool_pages,
                                       drafts ? &queued_drafter : nullptr)
                      .value();
    queued->ShareWith(*queued);
    ASSERT_TRUE(queued->WarmUp().ok());
    RandomPlans plans(seed, drafts);
    std::deque<std::pair<StepResult, StepResult>> flying;
    const auto finish = [&] {
      queued->Finish(flying.front().second);
      for (const RowResult& row : flying.front().second.rows) num_guesses += std::ssize(row.drafts);
      ExpectEqual(flying.front().first, flying.front().second);
      flying.pop_front();
    };
    for (int step = 0; step < 60; ++step) {
      const StepPlan plan = plans.Next();
      flying.emplace_back(ResultFor(plan), ResultFor(plan));
      plain->Run(plan, flying.back().first);
      queued->Run(plan, flying.back().second);
      if (flying.size() == 2) finish();
    }
    while (!flying.empty()) finish();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_EQ(num_guesses > 0, drafts);
}

class QueuedDpRanks : public QueuedWorkerTest {};

// The same plans over dp ranks, each of which has the rows of its own slots and knows how many the
// others bring; with a drafter on each or without.
TEST_P(QueuedDpRanks, TogetherBringTheResultsOfOne) {
  const auto device = MakeCpuDevice(0);
  auto alone = comm::MakeLocalGroup(1).value();
  auto all = comm::MakeLocalGroup(2).value();
  const auto exchanges = comm::TokenExchange::MakeLocal(all);
  const auto layout = comm::RankLayout::Create({.num_ranks = 2, .dp_size = 2}).value();
  const auto [graph_rows, drafts] = GetParam();
  StepLimits limits = kLimits;
  limits.num_groups += drafts ? 1 : 0;
  const std::vector<int32_t> pool_pages(static_cast<size_t>(limits.num_groups), kPoolPages);
  int64_t num_guesses = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RememberingModel models[3];
    RememberingDrafter drafters[3];
    std::vector<int64_t> counts(2, 0);
    const auto make = [&](int index, const ReplicaPlace& place) {
      auto worker =
          QueuedWorker::Create(*device, models[index], *alone[0],
                               {.limits = limits, .max_graph_rows = graph_rows, .place = place},
                               pool_pages, drafts ? &drafters[index] : nullptr)
              .value();
      worker->ShareWith(*worker);
      EXPECT_TRUE(worker->WarmUp().ok());
      return worker;
    };
    const auto place_of = [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      return ReplicaPlace{.layout = layout,
                          .rank = rank,
                          .all = all[r].get(),
                          .exchange = exchanges[r].get(),
                          .expert_counts = std::span(counts).subspan(r, 1)};
    };
    const auto one = make(2, {});
    const std::unique_ptr<QueuedWorker> ranks[] = {make(0, place_of(0)), make(1, place_of(1))};
    RandomPlans plans(seed, drafts);
    std::vector<int64_t> expected_counts(2, 0);
    for (int step = 0; step < 60; ++step) {
      StepPlan plan = plans.Next();
      for (const StepRow& row : plan.rows) {
        expected_counts[static_cast<size_t>(layout.dp_rank_of_slot(row.slot.value))] +=
            row.num_tokens();
      }
      StepResult expected = ResultFor(plan), result = ResultFor(plan);
      one->Run(plan, expected);
      one->Finish(expected);
      // Pages of both are numbered alike here, so that either may copy.
      const std::vector<PageCopy> copies = plan.copies;
      for (PageCopy copy : copies) {
        copy.dp_rank = 1;
        plan.copies.push_back(copy);
      }
      for (const auto& rank : ranks) rank->Run(plan, result);
      for (const auto& rank : ranks) rank->Finish(result);
      ExpectEqual(expected, result);
      for (const RowResult& row : result.rows) num_guesses += std::ssize(row.drafts);
      EXPECT_EQ(models[0].exchanged_rows, models[1].exchanged_rows);
      EXPECT_EQ(counts, expected_counts);
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_EQ(num_guesses > 0, drafts);
}

INSTANTIATE_TEST_SUITE_P(GraphRowsAndDrafts, QueuedDpRanks,
                         ::testing::Combine(::testing::Values(0, 3, 5), ::testing::Bool()));
INSTANTIATE_TEST_SUITE_P(GraphRowsAndDrafts, QueuedWorkerTest,
                         ::testing::Combine(::testing::Values(0, 3, 5), ::testing::Bool()));

}  // namespace
}  // namespace hayate::exec
