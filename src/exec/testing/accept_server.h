#pragma once
// One request at a time on a tiny checkpoint with its drafter, no step ahead, and every accept
// count at every place: for tests of what refused drafts leave behind, on any device.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "exec/local_executor.h"
#include "kv/kv_caches.h"
#include "models/testing/golden_case.h"
#include "sched/scheduler.h"

namespace hayate::exec::testing {

struct AcceptCase {
  const char* name;
  std::string checkpoint;
  models::DraftKind draft = models::DraftKind::kNone;
  std::string head = "";
};
inline void PrintTo(const AcceptCase& tested, std::ostream* out) { *out << tested.name; }

// Tiny checkpoints with every kind of cache and of drafter.
inline std::vector<AcceptCase> AcceptCases() {
  const std::string drafted = "deepseek_drafts/";
  using enum models::DraftKind;
  return {{"llama", "dense/llama", kStandalone},
          {"llama_eagle3", "eagle3/llama/target", kEagle3, "eagle3/llama/head"},
          {"qwen3_eagle3", "eagle3/qwen3/target", kEagle3, "eagle3/qwen3/head"},
          {"mistral_window", "dense/mistral_window_8"},
          {"gpt_oss", "gpt_oss/gpt_oss"},
          {"v3_mtp", drafted + "v3_mtp", kNextN},
          {"v32", "deepseek_v32/deepseek_v32"},
          {"v4_mtp", drafted + "v4_mtp", kNextN},
          {"v4_dspark", drafted + "v4_dspark", kDspark},
          {"v4_pro_dspark", drafted + "v4_pro_dspark", kDspark},
          {"v41_dspark", drafted + "v41_dspark", kDspark}};
}

class AcceptServer {
 public:
  static constexpr int32_t kPageTokens = 16;
  static constexpr int32_t kMaxContext = 144;
  static constexpr int32_t kText = 120;  // tokens of a run
  static constexpr int32_t kPrompt = 8;  // tokens that are given
  static constexpr int32_t kDrafts = 5;

  struct Options {
    DeviceKind device = DeviceKind::kCpu;
    int num_ranks = 1;
    int32_t max_drafts = kDrafts;
  };
  AcceptServer(const AcceptCase& tested, const Options& options)
      : checkpoint_(weights::Checkpoint::Open("tests/golden/" + tested.checkpoint).value()) {
    if (!tested.head.empty()) {
      head_.emplace(weights::Checkpoint::Open("tests/golden/" + tested.head).value());
    }
    const int32_t drafts = options.max_drafts;
    auto executor = LocalExecutor::Create(
        checkpoint_, {.device = options.device,
                      .num_ranks = options.num_ranks,
                      .gpu_step = CountCudaDevices() < options.num_ranks ? 0 : 1,
                      .memory_fraction = 0.05,
                      .max_graph_rows = 1,
                      .precision = ops::MatmulPrecision::kExact,
                      .kv_dtype = DType::kF32,
                      .page_tokens = kPageTokens,
                      .max_running = 1,
                      .max_drafts = drafts,
                      .draft = drafts > 0 ? tested.draft : models::DraftKind::kNone,
                      .draft_checkpoint = head_ ? &*head_ : nullptr,
                      .max_step_tokens = 32 + kDrafts + 1,
                      .max_step_logits = 16 + kDrafts + 1,
                      .total_tokens = 3 * kMaxContext});
    CHECK(executor.ok()) << executor.status().ToString();
    executor_ = std::move(executor).value();
    cache_ = kv::KvCaches::Create(
                 {.layout = executor_->cache_layout(), .num_pages = executor_->pool_pages()})
                 .value();
    scheduler_.emplace(sched::SchedulerOptions{.max_running = 1,
                                               .chunked_prefill_size = 32,
                                               .max_context = kMaxContext,
                                               .max_drafts = drafts,
                                               .max_step_drafts = drafts,
                                               .draft_lookahead = executor_->draft_lookahead()},
                       *cache_, clock_);
  }

  sched::Sequence& Begin(std::vector<TokenId> prompt, const SamplingParams& sampling) {
    Request request = {.id = {++last_id_}, .prompt = std::move(prompt)};
    request.sampling = sampling;
    request.sampling.max_new_tokens = kText - static_cast<int32_t>(request.prompt.size());
    scheduler_->Add(std::move(request));
    return *scheduler_->Find({last_id_});
  }
  // One step; tokens that it brought.
  int32_t Step(sched::Sequence& sequence) {
    EXPECT_TRUE(scheduler_->Plan(plan_));
    executor_->Submit(plan_);
    scheduler_->Submitted(plan_);
    StepResult& result = executor_->WaitOldest();
    CHECK(result.status.ok()) << result.status.ToString();
    scheduler_->Retired(result.step);
    const auto count = static_cast<int32_t>(result.rows[0].tokens.size());
    if (plan_.rows[0].num_drafts > 0) scheduler_->Verified(sequence, plan_.rows[0], count);
    for (const TokenId token : result.rows[0].tokens) scheduler_->Append(sequence, token);
    guesses_ = result.rows[0].drafts;
    return count;
  }
  // The drafter's, behind the last step.
  const std::vector<TokenId>& guesses() const { return guesses_; }
  void Finish(sched::Sequence& sequence) {
    scheduler_->Finish(sequence, sched::FinishMode::kPublish);
    const Status integrity = cache_->CheckIntegrity();
    EXPECT_TRUE(integrity.ok()) << integrity.ToString();
  }
  const StepPlan& plan() const { return plan_; }
  kv::KvCaches& cache() { return *cache_; }

  static SamplingParams Sampling(bool greedy) {
    SamplingParams sampling;
    sampling.temperature = greedy ? 0.0f : 1.2f;
    sampling.top_p = greedy ? 1.0f : 0.95f;
    sampling.seed = 77;
    sampling.max_new_tokens = kText;
    sampling.ignore_eos = true;
    return sampling;
  }
  // Drafts of the row behind text[0, known): so many right ones, then wrong ones.
  static std::vector<TokenId> Drafts(const std::vector<TokenId>& text, int32_t known,
                                     int32_t num_right) {
    std::vector<TokenId> drafts;
    const auto end = std::min(static_cast<int32_t>(text.size()), kText);
    for (int32_t i = 0; i < kDrafts && known + i < end; ++i) {
      const TokenId right = text[static_cast<size_t>(known + i)];
      drafts.push_back(i < num_right ? right : (right + 1 + i) % 256);
    }
    return drafts;
  }

 private:
  const weights::Checkpoint checkpoint_;
  std::optional<weights::Checkpoint> head_;
  VirtualClock clock_;
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<kv::KvCaches> cache_;
  std::optional<sched::Scheduler> scheduler_;
  StepPlan plan_;
  std::vector<TokenId> guesses_;
  uint64_t last_id_ = 0;
};

// What a server without drafts makes of the prompt, with the prompt.
inline std::vector<TokenId> PlainText(const AcceptCase& tested, AcceptServer::Options options,
                                      const SamplingParams& sampling) {
  options.max_drafts = 0;
  AcceptServer server(tested, options);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < AcceptServer::kPrompt; ++i) prompt.push_back(20 + 23 * i % 200);
  sched::Sequence& sequence = server.Begin(prompt, sampling);
  while (sequence.wants_sample()) server.Step(sequence);
  std::vector<TokenId> text = sequence.tokens;
  server.Finish(sequence);
  return text;
}

// Rows whose drafts stand up to a given one, from none to all, begun at every place of a page, and
// requests that end right after a refused draft and leave their pages to the next one, which goes
// on from there: all bring the plain text.
inline void ExpectPlainTextAtEveryAcceptCount(const AcceptCase& tested,
                                              const AcceptServer::Options& options, bool greedy) {
  constexpr int32_t kText = AcceptServer::kText, kDrafts = AcceptServer::kDrafts;
  const SamplingParams sampling = AcceptServer::Sampling(greedy);
  const std::vector<TokenId> text = PlainText(tested, options, sampling);
  AcceptServer server(tested, options);
  int32_t num_reused = 0;
  for (int32_t num_right = 0; num_right <= kDrafts; ++num_right) {
    std::set<int32_t> places;  // of the first draft that does not stand, in its page
    // Rows bring num_right + 1 tokens: each of so many beginnings goes by other places.
    for (int32_t first = 0; first <= num_right; ++first) {
      server.cache().Flush();
      int32_t known = AcceptServer::kPrompt + first;
      for (int32_t turn = 1; known + kDrafts + 2 < kText; ++turn) {
        sched::Sequence& sequence = server.Begin({text.begin(), text.begin() + known}, sampling);
        // A request of 0 to 2 rows behind its first token, which ends where a stop string would.
        while (sequence.num_generated() == 0) server.Step(sequence);
        for (int32_t row = 0; row < turn % 3 && sequence.known() + kDrafts + 1 < kText; ++row) {
          sequence.drafts = AcceptServer::Drafts(text, sequence.known(), num_right);
          ASSERT_EQ(server.Step(sequence), num_right + 1);
          ASSERT_EQ(server.plan().rows[0].num_drafts, kDrafts);
          places.insert((sequence.known() - 1) % AcceptServer::kPageTokens);
        }
        known = sequence.known();
        num_reused += sequence.cached_tokens;
        ASSERT_TRUE(std::equal(sequence.tokens.begin(), sequence.tokens.end(), text.begin()))
            << num_right << " drafts stand, up to " << known << (greedy ? "" : ", sampled");
        server.Finish(sequence);
      }
    }
    EXPECT_EQ(places.size(), size_t{AcceptServer::kPageTokens}) << num_right << " drafts stand";
  }
  EXPECT_GT(num_reused, 0);
}

// An oracle that speculates itself: greedy generation of transformers with V3's MTP layer, at every
// accept count and with the layer's own guesses.
inline void ExpectTransformersMtpText(const AcceptServer::Options& options) {
  const AcceptCase tested = {"v3_mtp", "deepseek_drafts/v3_mtp", models::DraftKind::kNextN};
  const auto file =
      weights::Checkpoint::Open("tests/golden/" + tested.checkpoint + "/expected.safetensors")
          .value();
  std::vector<TokenId> text = models::testing::GoldenValues<int32_t>(file, "input_ids");
  const std::vector<TokenId> prompt = text;
  const std::vector<TokenId> generated = models::testing::GoldenValues<int32_t>(file, "generated");
  text.insert(text.end(), generated.begin(), generated.end());
  AcceptServer server(tested, options);
  // −1: the layer's own guesses.
  for (int32_t num_right = -1; num_right <= AcceptServer::kDrafts; ++num_right) {
    server.cache().Flush();
    sched::Sequence& sequence = server.Begin(prompt, AcceptServer::Sampling(true));
    while (sequence.known() < static_cast<int32_t>(text.size())) {
      sequence.drafts.clear();
      if (sequence.num_generated() > 0) {
        sequence.drafts = num_right < 0 ? server.guesses()
                                        : AcceptServer::Drafts(text, sequence.known(), num_right);
      }
      server.Step(sequence);
    }
    EXPECT_TRUE(std::equal(text.begin(), text.end(), sequence.tokens.begin())) << num_right;
    EXPECT_GT(sequence.num_drafts, 0);
    server.Finish(sequence);
  }
}

// The drafter's own guesses as drafts bring the plain text too. Drafts that stood, of all.
struct OwnGuesses {
  int32_t num_drafts = 0, num_accepted = 0;
};
inline OwnGuesses ExpectPlainTextWithOwnGuesses(const AcceptCase& tested,
                                                const AcceptServer::Options& options,
                                                const SamplingParams& sampling) {
  const std::vector<TokenId> text = PlainText(tested, options, sampling);
  AcceptServer server(tested, options);
  sched::Sequence& sequence =
      server.Begin({text.begin(), text.begin() + AcceptServer::kPrompt}, sampling);
  while (sequence.wants_sample()) {
    sequence.drafts.clear();
    if (sequence.num_generated() > 0) {
      sequence.drafts = server.guesses();
      const auto room = static_cast<size_t>(AcceptServer::kText - sequence.known());
      if (sequence.drafts.size() > room) sequence.drafts.resize(room);
    }
    server.Step(sequence);
  }
  EXPECT_TRUE(std::equal(text.begin(), text.end(), sequence.tokens.begin()));
  const OwnGuesses counts = {sequence.num_drafts, sequence.num_accepted_drafts};
  server.Finish(sequence);
  return counts;
}

}  // namespace hayate::exec::testing
