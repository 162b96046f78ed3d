// Rows with drafts on the workers, over tiny checkpoints with every kind of cache: whatever is
// drafted, tokens and log-probabilities are those of plain steps, for every sampler, under memory
// pressure, on one rank, on ranks that split heads, and where rows travel to their experts.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "base/align.h"
#include "base/clock.h"
#include "base/rng.h"
#include "exec/local_executor.h"
#include "kv/kv_caches.h"
#include "sched/scheduler.h"

namespace hayate::exec {
namespace {

constexpr const char* kLlama = "tests/golden/dense/llama";
constexpr int32_t kPageTokens = 16;
constexpr int32_t kMaxContext = 128;
constexpr int32_t kMaxRunning = 5;
constexpr int32_t kMaxDrafts = 4;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  int32_t num_drafts = 0, num_accepted = 0;
};
using Answers = std::vector<Answer>;

struct Layout {
  const char* name = "1";
  int num_ranks = 1;
  int dp_size = 1;
  int ep_size = 0;
};
// Ranks that split nothing but experts have the bits of one.
constexpr Layout kDep2 = {"dep2", 2, 2};
constexpr Layout kTp2 = {"tp2", 2}, kEp2 = {"ep2", 2, 1, 2}, kDp2Tp2 = {"dp2_tp2", 4, 2};
constexpr Layout kDep4 = {"dep4", 4, 4};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

struct ServerOptions {
  std::string checkpoint;
  Layout layout = {};
  int32_t max_drafts = kMaxDrafts;
  models::DraftKind draft = models::DraftKind::kNone;
  // Without a drafter: guesses of the plain answers' next tokens, each right with this chance.
  const Answers* plain = nullptr;
  float quality = 0.0f;
};

// What the engine does of a step, in the small: one in flight, no events.
class Server {
 public:
  explicit Server(const ServerOptions& options)
      : options_(options),
        checkpoint_(weights::Checkpoint::Open(options.checkpoint).value()),
        executor_(LocalExecutor::Create(checkpoint_, MakeOptions(options, checkpoint_)).value()),
        cache_(kv::KvCaches::Create(
                   {.layout = executor_->cache_layout(), .num_pages = executor_->pool_pages()},
                   options.layout.dp_size)
                   .value()),
        scheduler_({.max_running = kMaxRunning,
                    .num_dp_ranks = options.layout.dp_size,
                    .chunked_prefill_size = 24,
                    .max_context = kMaxContext,
                    .max_drafts = options.max_drafts,
                    .max_step_drafts = kMaxRunning * options.max_drafts,
                    .draft_lookahead = executor_->draft_lookahead()},
                   *cache_, clock_) {}

  Answers Run(const std::vector<Request>& requests) {
    answers_.resize(requests.size());
    for (const Request& request : requests) {
      EXPECT_TRUE(scheduler_.Validate(request).ok());
      scheduler_.Add(request);
    }
    StepPlan plan;
    for (int turn = 1; !scheduler_.idle(); ++turn) {
      if (turn % 25 == 0) scheduler_.RetractAll();
      Draft();
      if (!scheduler_.Plan(plan)) continue;
      executor_->Submit(plan);
      scheduler_.Submitted(plan);
      StepResult& result = executor_->WaitOldest();
      EXPECT_TRUE(result.status.ok());
      scheduler_.Retired(result.step);
      for (size_t i = 0; i < plan.rows.size(); ++i) Commit(plan.rows[i], result.rows[i]);
      const Status integrity = cache_->CheckIntegrity();
      EXPECT_TRUE(integrity.ok()) << integrity.ToString();
    }
    return answers_;
  }
  // By request and how many tokens it had generated.
  using Guesses = std::map<std::pair<RequestId, int32_t>, std::vector<TokenId>>;
  const Guesses& guesses() const { return guesses_; }
  int64_t num_retractions() const {
    return static_cast<int64_t>(scheduler_.stats().num_retractions);
  }

 private:
  static ExecutorOptions MakeOptions(const ServerOptions& options,
                                     const weights::Checkpoint& checkpoint) {
    const int32_t experts = models::ReadExpertShape(checkpoint).value().num_experts;
    return {.num_ranks = options.layout.num_ranks,
            .dp_size = options.layout.dp_size,
            .ep_size = options.layout.ep_size,
            .expert_plan = {.num_redundant = AlignUp(experts, options.layout.num_ranks) - experts},
            .precision = ops::MatmulPrecision::kExact,
            .kv_dtype = DType::kF32,
            .page_tokens = kPageTokens,
            .max_running = kMaxRunning,
            .max_drafts = options.max_drafts,
            .draft = options.draft,
            .draft_checkpoint = nullptr,
            .max_step_tokens = 24 + kMaxRunning * (kMaxDrafts + 1),
            .max_step_logits = 16 + kMaxRunning * (kMaxDrafts + 1),
            .total_tokens = 2 * kMaxContext * options.layout.dp_size};
  }

  void Draft() {
    for (sched::Sequence* sequence : scheduler_.running()) {
      sequence->drafts.clear();
      if (!sequence->decodes_known()) continue;
      const RequestId id = sequence->request.id;
      if (options_.plain == nullptr) {
        sequence->drafts = proposed_[id];
        continue;
      }
      const std::vector<TokenId>& right = (*options_.plain)[id.value].tokens;
      for (uint32_t i = 0, count = rng_.Below(kMaxDrafts + 1); i < count; ++i) {
        const auto at = static_cast<size_t>(sequence->num_generated()) + i;
        if (at >= right.size() && options_.quality == 1.0f) break;
        const bool hit = at < right.size() && rng_.NextFloat() < options_.quality;
        sequence->drafts.push_back(hit ? right[at] : static_cast<TokenId>(rng_.Below(200)));
      }
    }
  }

  void Commit(const StepRow& row, RowResult& result) {
    sched::Sequence& sequence = *scheduler_.InSlot(row.slot);
    const RequestId id = sequence.request.id;
    Answer& answer = answers_[id.value];
    if (row.num_drafts > 0) {
      scheduler_.Verified(sequence, row, static_cast<int32_t>(result.tokens.size()));
    }
    answer.num_drafts = sequence.num_drafts;
    answer.num_accepted = sequence.num_accepted_drafts;
    const SamplingParams& sampling = sequence.request.sampling;
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const TokenId token = result.tokens[i];
      scheduler_.Append(sequence, token);
      answer.tokens.push_back(token);
      if (i < result.logprobs.size()) answer.logprobs.push_back(result.logprobs[i]);
      const bool stops = token == sampling.stop_token_ids[0] &&
                         sequence.num_generated() >= sampling.min_new_tokens;
      if (stops || sequence.num_generated() == sampling.max_new_tokens) {
        scheduler_.Finish(sequence, sched::FinishMode::kPublish);
        return;
      }
    }
    proposed_[id] = result.drafts;
    if (!result.drafts.empty()) guesses_[{id, sequence.num_generated()}] = result.drafts;
  }

  const ServerOptions options_;
  const weights::Checkpoint checkpoint_;
  VirtualClock clock_;
  Rng rng_{3};
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<kv::KvCaches> cache_;
  sched::Scheduler scheduler_;
  Answers answers_;
  std::map<RequestId, std::vector<TokenId>> proposed_;
  Guesses guesses_;
};

std::vector<Request> MixedRequests(int count) {
  Rng rng(9);
  std::vector<TokenId> shared;
  for (int i = 0; i < 40; ++i) shared.push_back(static_cast<TokenId>(rng.Below(200)));
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = {static_cast<uint64_t>(i)};
    request.prompt.assign(shared.begin(), shared.begin() + rng.Between(1, 40));
    for (int extra = rng.Between(0, 30); extra > 0; --extra) {
      request.prompt.push_back(static_cast<TokenId>(rng.Below(200)));
    }
    SamplingParams& sampling = request.sampling;
    sampling.temperature = rng.Below(2) == 0 ? 0.0f : 0.5f + rng.NextFloat();
    if (rng.Below(3) == 0) sampling.top_k = rng.Between(2, 30);
    if (rng.Below(3) == 0) sampling.top_p = 0.6f;
    if (rng.Below(3) == 0) sampling.min_p = 0.1f;
    if (rng.Below(3) == 0) sampling.frequency_penalty = 1.5f;
    if (rng.Below(3) == 0) sampling.repetition_penalty = 1.3f;
    if (rng.Below(4) == 0) sampling.logit_bias = {{5, 3.0f}, {17, -4.0f}};
    sampling.seed = static_cast<uint64_t>(100 + i);
    sampling.max_new_tokens = rng.Between(1, 50);
    sampling.min_new_tokens = rng.Between(0, 8);
    sampling.stop_token_ids = {static_cast<TokenId>(rng.Below(40))};
    if (rng.Below(2) == 0) request.logprobs = {.enabled = true, .num_top = rng.Between(0, 3)};
    requests.push_back(std::move(request));
  }
  return requests;
}

void ExpectEqual(const Answers& got, const Answers& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].tokens, expected[i].tokens) << "request " << i;
    ASSERT_EQ(got[i].logprobs.size(), expected[i].logprobs.size());
    for (size_t t = 0; t < got[i].logprobs.size(); ++t) {
      ASSERT_EQ(got[i].logprobs[t].token, expected[i].logprobs[t].token);
      ASSERT_EQ(got[i].logprobs[t].logprob, expected[i].logprobs[t].logprob);
      ASSERT_EQ(got[i].logprobs[t].top, expected[i].logprobs[t].top);
    }
  }
}

int32_t NumDrafts(const Answers& answers) {
  int32_t count = 0;
  for (const Answer& answer : answers) count += answer.num_drafts;
  return count;
}
int32_t NumAccepted(const Answers& answers) {
  int32_t count = 0;
  for (const Answer& answer : answers) count += answer.num_accepted;
  return count;
}

struct Case {
  const char* name;
  std::string checkpoint;
  models::DraftKind draft;  // what its checkpoint holds
};
std::string Drafts(const char* name) { return std::string("tests/golden/deepseek_drafts/") + name; }
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

class Speculation : public ::testing::TestWithParam<std::tuple<Case, Layout>> {
 protected:
  ServerOptions Options() const {
    const auto& [tested, layout] = GetParam();
    return {.checkpoint = tested.checkpoint, .layout = layout};
  }
  Answers Plain(const std::vector<Request>& requests) const {
    ServerOptions options = Options();
    options.max_drafts = 0;
    return Server(options).Run(requests);
  }
};

TEST_P(Speculation, DraftsOfAnyQualityChangeNeitherTokensNorLogprobs) {
  const std::vector<Request> requests = MixedRequests(24);
  const Answers plain = Plain(requests);
  for (const float quality : {0.0f, 0.6f, 1.0f}) {
    ServerOptions options = Options();
    options.plain = &plain;
    options.quality = quality;
    Server server(options);
    const Answers drafted = server.Run(requests);
    ExpectEqual(drafted, plain);
    EXPECT_GT(server.num_retractions(), 0);
    EXPECT_GT(NumDrafts(drafted), 80);
    EXPECT_TRUE(quality < 1.0f || NumAccepted(drafted) == NumDrafts(drafted));
  }
}

TEST_P(Speculation, TheDrafterOfTheCheckpointChangesNeitherTokensNorLogprobs) {
  const std::vector<Request> requests = MixedRequests(24);
  const Answers plain = Plain(requests);
  ServerOptions options = Options();
  options.draft = std::get<0>(GetParam()).draft;
  const Answers drafted = Server(options).Run(requests);
  ExpectEqual(drafted, plain);
  EXPECT_GT(NumDrafts(drafted), 80);
  ServerOptions one = Options();
  one.max_drafts = 0;
  one.layout = {};
  const Answers alone = Server(one).Run(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(drafted[i].tokens, alone[i].tokens) << "request " << i << " on one rank";
  }
}

// The drafters' guesses too are those of one rank, wherever the target's experts lie; which steps
// ask for some hangs on who waits. Where heads are split, sums round in another order.
TEST_P(Speculation, GuessesAreThoseOfOneRank) {
  const std::vector<Request> requests = MixedRequests(24);
  ServerOptions options = Options();
  options.draft = std::get<0>(GetParam()).draft;
  Server server(options);
  server.Run(requests);
  const bool same_bits = options.layout.num_ranks == options.layout.dp_size;
  options.layout = {};
  Server one(options);
  one.Run(requests);
  int compared = 0, different = 0;
  for (const auto& [place, guesses] : server.guesses()) {
    const auto found = one.guesses().find(place);
    if (found == one.guesses().end()) continue;
    ++compared;
    different += guesses != found->second;
  }
  EXPECT_GT(compared, 50);
  EXPECT_LE(different, same_bits ? 0 : compared / 50);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Speculation,
    ::testing::Combine(
        ::testing::Values(Case{"llama", kLlama, models::DraftKind::kStandalone},
                          Case{"v4_mtp", Drafts("v4_mtp"), models::DraftKind::kNextN},
                          Case{"v4_dspark", Drafts("v4_dspark"), models::DraftKind::kDspark},
                          Case{"v4_pro_dspark", Drafts("v4_pro_dspark"),
                               models::DraftKind::kDspark},
                          Case{"v41_dspark", Drafts("v41_dspark"), models::DraftKind::kDspark}),
        ::testing::Values(Layout{}, kTp2)),
    [](const auto& tested) {
      return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
    });

INSTANTIATE_TEST_SUITE_P(
    Exchanges, Speculation,
    ::testing::Combine(
        ::testing::Values(Case{"v3_mtp", Drafts("v3_mtp"), models::DraftKind::kNextN},
                          Case{"v4_mtp", Drafts("v4_mtp"), models::DraftKind::kNextN},
                          Case{"v4_dspark", Drafts("v4_dspark"), models::DraftKind::kDspark},
                          Case{"v4_pro_dspark", Drafts("v4_pro_dspark"),
                               models::DraftKind::kDspark},
                          Case{"v41_dspark", Drafts("v41_dspark"), models::DraftKind::kDspark}),
        ::testing::Values(kDep2, kEp2, kDp2Tp2, kDep4)),
    [](const auto& tested) {
      return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
    });

TEST(SelfSpeculation, AModelThatDraftsForItselfGuessesEveryToken) {
  const std::vector<Request> requests = MixedRequests(24);
  const Answers drafted =
      Server({.checkpoint = kLlama, .draft = models::DraftKind::kStandalone}).Run(requests);
  for (size_t i = 0; i < drafted.size(); ++i) {
    // Guesses are drawn with the request's own random numbers; but penalties do not count them.
    if (requests[i].sampling.has_penalties()) continue;
    EXPECT_EQ(drafted[i].num_accepted, drafted[i].num_drafts) << "request " << i;
  }
  EXPECT_GT(NumDrafts(drafted), 100);
}

}  // namespace
}  // namespace hayate::exec
