// A model with every kind of cache group, served under memory pressure: whatever was reused, cut,
// evicted, retracted, cancelled or refused, its logits are those of the same tokens computed alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "base/clock.h"
#include "base/rng.h"
#include "exec/rank_worker.h"
#include "kv/kv_cache.h"
#include "models/draft_model.h"
#include "models/testing/model_runner.h"
#include "sched/scheduler.h"

namespace hayate::exec {
namespace {

constexpr int32_t kMaxContext = 320;
constexpr int32_t kMaxAnswer = 40;
constexpr int32_t kVocab = 256;  // token ids that prompts use
constexpr int32_t kMaxDrafts = 5;
// ThreadSanitizer makes the arithmetic some twenty times slower.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kNumSeeds = 2;
#else
constexpr uint64_t kNumSeeds = 12;
#endif

struct TrialOptions {
  int32_t chunk = 0, max_running = 0;
  int32_t max_drafts = 0;           // of a row; random ones, of which random many stand
  std::vector<int32_t> pool_pages;  // per group
};

// The answer to a request: its tokens, and the logits that chose each of them.
struct Answer {
  std::vector<TokenId> tokens;
  int32_t prompt_length = 0;
  std::map<int32_t, std::vector<float>> logits;  // by position
};

// The model's groups, then the drafter's, which is replayed along.
CacheLayout LayoutOf(const models::Model& model, const models::DraftModel* drafter) {
  CacheLayout layout = model.cache_layout();
  if (drafter == nullptr) return layout;
  for (CacheGroup group : drafter->cache_groups()) {
    group.replayed = layout.replay_tokens > 0;
    layout.groups.push_back(std::move(group));
  }
  return layout;
}

class Server {
 public:
  Server(models::Model& model, models::DraftModel* drafter, Device& device,
         const TrialOptions& options)
      : model_(model),
        cache_(kv::KvCaches::Create(
                   {.layout = LayoutOf(model, drafter), .num_pages = options.pool_pages})
                   .value()),
        scheduler_({.max_running = options.max_running,
                    .chunked_prefill_size = options.chunk,
                    .max_context = kMaxContext,
                    .max_drafts = options.max_drafts,
                    .max_step_drafts = options.max_drafts * options.max_running,
                    .draft_lookahead = drafter == nullptr ? 0 : drafter->max_drafts()},
                   *cache_, clock_),
        max_drafts_(options.max_drafts),
        has_drafter_(drafter != nullptr),
        logits_(static_cast<size_t>(MaxLogits(options) * model.facts().vocab_size)),
        last_tokens_(static_cast<size_t>(options.max_running)),
        guesses_(last_tokens_.size()) {
    const int32_t page = cache_->page_tokens();
    const StepLimits limits = {.max_rows = options.max_running,
                               .max_tokens = options.chunk + MaxLogits(options),
                               .max_logits = MaxLogits(options),
                               .page_tokens = page,
                               .max_slot_pages = kMaxContext / page,
                               .num_groups = cache_->num_groups()};
    worker_ = RankWorker::Create(device, model, *group_[0], limits, options.pool_pages,
                                 {.logits = logits_.data(),
                                  .last_tokens = last_tokens_.data(),
                                  .guesses = guesses_.data()},
                                 {}, drafter)
                  .value();
  }
  ~Server() {
    while (sched::Sequence* sequence = scheduler_.Any()) {
      scheduler_.Finish(*sequence, sched::FinishMode::kDrop);
    }
  }

  RequestId Add(std::vector<TokenId> prompt, int32_t max_new_tokens) {
    Request request = {.id = {next_id_++}, .prompt = std::move(prompt)};
    request.sampling.temperature = 0.0f;
    request.sampling.max_new_tokens = max_new_tokens;
    EXPECT_TRUE(scheduler_.Validate(request).ok());
    answers_[request.id] = {request.prompt, static_cast<int32_t>(request.prompt.size()), {}};
    const RequestId id = request.id;
    scheduler_.Add(std::move(request));
    return id;
  }
  void Cancel(RequestId id) {
    if (sched::Sequence* sequence = scheduler_.Find(id)) {
      scheduler_.Finish(*sequence, sched::FinishMode::kDrop);
    }
    answers_.erase(id);
  }
  void Flush() { cache_->Flush(); }

  // One turn: a step is planned before the tokens of the last one are known, as the engine does,
  // but for some steps, whose rows can have drafts then.
  void Turn() {
    if (max_drafts_ > 0 && rng_.Below(2) == 0) {
      while (!in_flight_.empty()) Commit();
    }
    Guess();
    StepPlan plan;
    if (scheduler_.Plan(plan)) {
      auto& step = in_flight_.emplace_back();
      step.result.rows.resize(plan.rows.size());
      for (const StepRow& row : plan.rows) {
        step.ids.push_back(scheduler_.InSlot(row.slot)->request.id);
      }
      step.plan = plan;
      scheduler_.Submitted(plan);
      worker_->Run(plan, step.result);
      KeepLogits(step);
    }
    ExpectIntegrity();
    const size_t keep = plan.empty() ? 0 : 1;
    while (in_flight_.size() > keep) Commit();
    ExpectIntegrity();
  }
  bool idle() const { return scheduler_.idle() && in_flight_.empty(); }

  uint64_t num_refused() const { return num_refused_; }
  uint64_t num_guessed() const { return num_guessed_; }
  // Answers that ended since the last call.
  std::vector<Answer> TakeFinished() { return std::move(finished_); }
  const kv::KvCaches& cache() const { return *cache_; }

 private:
  struct InFlight {
    StepPlan plan;
    StepResult result;
    std::vector<RequestId> ids;
  };

  static int32_t MaxLogits(const TrialOptions& options) {
    return options.max_running * (1 + options.max_drafts) + 16;
  }

  // The drafter's guesses where there are some, which stand as they deserve; else random ones.
  void Guess() {
    for (sched::Sequence* sequence : scheduler_.running()) {
      sequence->drafts.clear();
      sequence->forced_accepts = -1;
      if (!sequence->decodes_known()) continue;
      const auto guessed = guessed_.find(sequence->request.id);
      if (guessed != guessed_.end() && rng_.Below(2) == 0) {
        sequence->drafts = guessed->second;
        num_guessed_ += sequence->drafts.size();
        continue;
      }
      const int32_t count = rng_.Between(0, max_drafts_);
      for (int32_t i = 0; i < count; ++i) {
        sequence->drafts.push_back(static_cast<TokenId>(rng_.Below(kVocab)));
      }
      if (!has_drafter_) sequence->forced_accepts = rng_.Between(0, count);
    }
  }

  void KeepLogits(const InFlight& step) {
    if (has_drafter_) return;
    const auto vocab = static_cast<size_t>(model_.facts().vocab_size);
    size_t row_of_logits = 0;
    for (size_t i = 0; i < step.plan.rows.size(); ++i) {
      const StepRow& row = step.plan.rows[i];
      if (!row.samples) continue;
      const float* first = logits_.data() + row_of_logits * vocab;
      row_of_logits += static_cast<size_t>(row.num_drafts) + 1;
      const auto found = answers_.find(step.ids[i]);
      if (found == answers_.end()) continue;
      // One position for every token that the row brings.
      int32_t position = row.end - row.num_drafts - 1;
      for (size_t n = 0; n < step.result.rows[i].tokens.size(); ++n, first += vocab) {
        found->second.logits[position++] = {first, first + vocab};
      }
    }
  }

  void Commit() {
    InFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_.Retired(step.plan.step);
    for (size_t i = 0; i < step.ids.size(); ++i) {
      sched::Sequence* sequence = scheduler_.Find(step.ids[i]);
      const StepRow& row = step.plan.rows[i];
      if (sequence == nullptr || !row.samples) continue;
      ASSERT_FALSE(step.result.rows[i].bad_logits);
      if (row.num_drafts > 0) {
        const auto num_tokens = static_cast<int32_t>(step.result.rows[i].tokens.size());
        scheduler_.Verified(*sequence, row, num_tokens);
        num_refused_ += static_cast<uint64_t>(row.num_drafts + 1 - num_tokens);
      }
      for (const TokenId token : step.result.rows[i].tokens) scheduler_.Append(*sequence, token);
      guessed_.erase(step.ids[i]);
      if (!step.result.rows[i].drafts.empty()) {
        guessed_[step.ids[i]] = step.result.rows[i].drafts;
      }
      if (sequence->num_generated() < sequence->request.sampling.max_new_tokens) continue;
      Answer answer = std::move(answers_[step.ids[i]]);
      answer.tokens = sequence->tokens;
      answers_.erase(step.ids[i]);
      scheduler_.Finish(*sequence, sched::FinishMode::kPublish);
      finished_.push_back(std::move(answer));
    }
  }

  void ExpectIntegrity() {
    const Status status = cache_->CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.message();
  }

  models::Model& model_;
  VirtualClock clock_;
  std::unique_ptr<kv::KvCaches> cache_;
  sched::Scheduler scheduler_;
  const int32_t max_drafts_;
  const bool has_drafter_;  // its guesses overwrite the target's logits
  Rng rng_{5};
  uint64_t num_refused_ = 0, num_guessed_ = 0;
  std::map<RequestId, std::vector<TokenId>> guessed_;  // by the drafter, behind the last token
  std::vector<float> logits_;
  std::vector<int32_t> last_tokens_, guesses_;
  std::vector<std::unique_ptr<comm::Group>> group_ = comm::MakeLocalGroup(1).value();
  std::unique_ptr<RankWorker> worker_;
  std::deque<InFlight> in_flight_;
  std::map<RequestId, Answer> answers_;
  std::vector<Answer> finished_;
  uint64_t next_id_ = 1;
};

struct HybridModel {
  const char* path;
  DType kv_dtype;
  models::WindowReuse window_reuse = models::WindowReuse::kStored;
  models::DraftKind draft = models::DraftKind::kNone;
};

class HybridCache : public ::testing::TestWithParam<HybridModel> {
 protected:
  HybridCache()
      : checkpoint_(weights::Checkpoint::Open(GetParam().path).value()),
        runner_(models::testing::ModelRunner::Create(
                    checkpoint_,
                    {.kv_dtype = GetParam().kv_dtype, .num_pages = 32, .max_tokens = kMaxContext})
                    .value()),
        options_({.device = device_.get(),
                  .precision = ops::MatmulPrecision::kExact,
                  .kv_dtype = GetParam().kv_dtype,
                  .max_drafts = kMaxDrafts,
                  .window_reuse = GetParam().window_reuse,
                  .draft = GetParam().draft}),
        model_(models::LoadModel(checkpoint_, options_).value()) {
    if (GetParam().draft == models::DraftKind::kNone) return;
    drafter_ = models::LoadDraftModel(checkpoint_, options_, *model_).value();
  }

  TrialOptions RandomOptions(Rng& rng) const {
    TrialOptions options = {.chunk = rng.Between(1, 96), .max_running = rng.Between(1, 4)};
    const CacheLayout layout = LayoutOf(*model_, drafter_.get());
    for (const CacheGroup& group : layout.groups) {
      const int32_t whole = kMaxContext / layout.page_tokens;
      // From just enough for one sequence to plenty, each group for itself.
      options.pool_pages.push_back(group.kind == CacheKind::kState
                                       ? 2 * options.max_running + 1
                                       : whole + 1 + rng.Between(0, 3 * whole));
    }
    return options;
  }

  // The logits of every position of `tokens`, computed in one go.
  void ExpectAsAlone(const Answer& answer) {
    const std::vector<TokenId> computed(answer.tokens.begin(), answer.tokens.end() - 1);
    const std::vector<float> expected =
        runner_->Step({{0, computed, models::testing::WantedLogits::kAll}});
    runner_->Drop(0);
    const auto vocab = static_cast<size_t>(runner_->vocab_size());
    const size_t generated = answer.tokens.size() - static_cast<size_t>(answer.prompt_length);
    if (drafter_ != nullptr) {  // the tokens tell
      for (size_t i = answer.tokens.size() - generated; i < answer.tokens.size(); ++i) {
        const auto row = expected.begin() + static_cast<std::ptrdiff_t>((i - 1) * vocab);
        const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab));
        ASSERT_EQ(answer.tokens[i], best - row) << "position " << i;
      }
      return;
    }
    EXPECT_EQ(answer.logits.size(), generated);
    for (const auto& [position, logits] : answer.logits) {
      ASSERT_EQ(std::memcmp(logits.data(), expected.data() + static_cast<size_t>(position) * vocab,
                            vocab * sizeof(float)),
                0)
          << "position " << position << " of " << answer.tokens.size();
    }
  }

  // A new conversation, or a turn more, a fork or an edit of one before.
  std::vector<TokenId> NextPrompt(Rng& rng, const std::vector<Answer>& answers) {
    std::vector<TokenId> prompt;
    if (!answers.empty() && rng.Below(4) != 0) {
      prompt = answers[rng.Below(static_cast<uint32_t>(answers.size()))].tokens;
      if (rng.Below(2) == 0) {
        prompt.resize(1 + rng.Below(static_cast<uint32_t>(prompt.size())));
      }
    }
    const int32_t room = kMaxContext - kMaxAnswer - static_cast<int32_t>(prompt.size());
    if (room <= 0) prompt.resize(kMaxContext / 2);
    const int32_t count = rng.Between(1, std::min(90, std::max(1, room)));
    for (int32_t i = 0; i < count; ++i) {
      prompt.push_back(static_cast<TokenId>(rng.Below(kVocab)));
    }
    return prompt;
  }

  // Random conversations under random limits.
  void RunTrials(int32_t max_drafts) {
    uint64_t hit_tokens = 0, evicted = 0, refused = 0, guessed = 0;
    for (uint64_t seed = 0; seed < kNumSeeds && !HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      Rng rng(seed);
      TrialOptions options = RandomOptions(rng);
      options.max_drafts = max_drafts;
      Server server(*model_, drafter_.get(), *device_, options);
      std::vector<Answer> answers;
      std::vector<RequestId> open;
      int32_t to_add = 24;
      while (!HasFailure() && (to_add > 0 || !server.idle())) {
        if (to_add > 0 && rng.Below(4) == 0) {
          open.push_back(server.Add(NextPrompt(rng, answers), rng.Between(1, kMaxAnswer)));
          --to_add;
        }
        if (!open.empty() && rng.Below(80) == 0) {
          server.Cancel(open[rng.Below(static_cast<uint32_t>(open.size()))]);
        }
        if (rng.Below(300) == 0) server.Flush();
        server.Turn();
        for (Answer& answer : server.TakeFinished()) {
          ExpectAsAlone(answer);
          answers.push_back(std::move(answer));
        }
      }
      refused += server.num_refused();
      guessed += server.num_guessed();
      hit_tokens += server.cache().stats().hit_tokens;
      for (const uint64_t pages : server.cache().stats().evicted_pages) evicted += pages;
    }
    // The trials met what they are about.
    EXPECT_GT(hit_tokens, 160 * kNumSeeds);
    EXPECT_GT(evicted, 8 * kNumSeeds);
    EXPECT_EQ(refused > 40 * kNumSeeds, max_drafts > 0);
    EXPECT_EQ(guessed > 40 * kNumSeeds, max_drafts > 0 && drafter_ != nullptr);
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  weights::Checkpoint checkpoint_;
  std::unique_ptr<models::testing::ModelRunner> runner_;
  models::LoadOptions options_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<models::DraftModel> drafter_;  // may be none
};

TEST_P(HybridCache, LogitsDoNotDependOnWhatWasReused) { RunTrials(0); }

TEST_P(HybridCache, LogitsDoNotDependOnDraftsThatWereRefused) { RunTrials(kMaxDrafts); }

TEST_P(HybridCache, EveryPageBorderIsResumedToTheBit) {
  Rng rng(7);
  TrialOptions options = {.chunk = 50, .max_running = 2};
  options.pool_pages.assign(LayoutOf(*model_, drafter_.get()).groups.size(), 64);
  Server server(*model_, drafter_.get(), *device_, options);
  std::vector<TokenId> base;
  for (int32_t i = 0; i < 250; ++i) base.push_back(static_cast<TokenId>(rng.Below(kVocab)));
  const auto serve = [&](std::vector<TokenId> prompt) {
    server.Add(std::move(prompt), 3);
    while (!server.idle()) server.Turn();
    for (const Answer& answer : server.TakeFinished()) ExpectAsAlone(answer);
  };
  serve(base);
  const int32_t page = model_->cache_layout().page_tokens;
  for (int32_t border = page; border < 250; border += page) {
    for (const int32_t beyond : {1, 2, 3, 4, 5}) {
      const uint64_t hits = server.cache().stats().hit_tokens;
      std::vector<TokenId> prompt(base.begin(), base.begin() + border);
      for (int32_t i = 0; i < beyond; ++i) prompt.push_back(static_cast<TokenId>(beyond + i));
      serve(std::move(prompt));
      EXPECT_EQ(server.cache().stats().hit_tokens - hits, static_cast<uint64_t>(border));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, HybridCache,
    ::testing::Values(HybridModel{"tests/golden/deepseek_v4/ratio_32", DType::kF32},
                      HybridModel{"tests/golden/deepseek_v4/ratio_32", DType::kBF16},
                      HybridModel{"tests/golden/deepseek_v41/tiny", DType::kF32},
                      HybridModel{"tests/golden/deepseek_v41/tiny", DType::kF32,
                                  models::WindowReuse::kReplayedExactly},
                      HybridModel{"tests/golden/deepseek_drafts/v41_dspark", DType::kF32,
                                  models::WindowReuse::kReplayedExactly,
                                  models::DraftKind::kDspark},
                      HybridModel{"tests/golden/deepseek_drafts/v4_mtp", DType::kF32,
                                  models::WindowReuse::kStored, models::DraftKind::kNextN},
                      HybridModel{"tests/golden/deepseek_drafts/v4_pro_dspark", DType::kF32,
                                  models::WindowReuse::kStored, models::DraftKind::kDspark}),
    [](const auto& test) {
      const std::filesystem::path path = test.param.path;
      const bool replays = test.param.window_reuse != models::WindowReuse::kStored;
      return path.parent_path().filename().string() + "_" + path.filename().string() + "_" +
             std::string(Info(test.param.kv_dtype).name) + (replays ? "_replayed" : "");
    });

}  // namespace
}  // namespace hayate::exec
