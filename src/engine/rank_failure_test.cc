// The engine over ranks that compute a tiny mixture of experts, one of which fails: every request
// is answered with the failure, and nobody waits for the dead.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "exec/local_executor.h"

namespace hayate::engine {
namespace {

constexpr int32_t kMaxContext = 160;

struct Layout {
  const char* name;
  int num_ranks;
  int dp_size = 1;
  int ep_size = 0;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class RankFailure : public ::testing::TestWithParam<Layout> {
 protected:
  RankFailure()
      : checkpoint_(weights::Checkpoint::Open("tests/golden/qwen_moe/qwen3_moe").value()) {
    const Layout& layout = GetParam();
    sched::SchedulerOptions scheduler = {.max_running = 8,
                                         .num_dp_ranks = layout.dp_size,
                                         .chunked_prefill_size = 24 * layout.dp_size,
                                         .max_context = kMaxContext};
    executor_ =
        exec::LocalExecutor::Create(checkpoint_, {.num_ranks = layout.num_ranks,
                                                  .dp_size = layout.dp_size,
                                                  .ep_size = layout.ep_size,
                                                  .fail_rank_at_step = 12,
                                                  .precision = ops::MatmulPrecision::kExact,
                                                  .kv_dtype = DType::kF32,
                                                  .page_tokens = 16,
                                                  .max_context = kMaxContext,
                                                  .max_running = scheduler.max_running,
                                                  .max_step_tokens = scheduler.max_step_tokens(),
                                                  .max_step_logits = scheduler.max_step_logits(),
                                                  .total_tokens = int64_t{800} * layout.dp_size})
            .value();
    cache_ =
        kv::KvCaches::Create({executor_->cache_layout(), executor_->pool_pages()}, layout.dp_size)
            .value();
    scheduler_ = std::make_unique<sched::Scheduler>(scheduler, *cache_, clock_);
    engine_ = std::make_unique<Engine>(Engine::Parts{.scheduler = scheduler_.get(),
                                                     .cache = cache_.get(),
                                                     .executor = executor_.get(),
                                                     .inbox = &inbox_,
                                                     .outboxes = {&outbox_},
                                                     .clock = &clock_,
                                                     .metrics = &metrics_,
                                                     .step_log = &step_log_,
                                                     .max_queued = 100});
    client_ = std::make_unique<Client>(inbox_, *engine_);
  }

  RequestId Submit(int32_t prompt_length, int32_t max_new_tokens) {
    Request request;
    request.id = client_->NewId();
    for (int32_t i = 0; i < prompt_length; ++i) {
      request.prompt.push_back(
          static_cast<TokenId>(rng_.Below(static_cast<uint32_t>(executor_->facts().vocab_size))));
    }
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
    request.sampling.max_new_tokens = max_new_tokens;
    const RequestId id = request.id;
    EXPECT_TRUE(client_->Submit(std::move(request)).ok());
    return id;
  }

  void Settle() {
    while (engine_->Turn()) {
    }
    std::vector<TokenEvent> drained;
    outbox_.Drain(drained);
    for (TokenEvent& event : drained) last_[event.id] = std::move(event);
  }

  const weights::Checkpoint checkpoint_;
  VirtualClock clock_;
  Rng rng_{4};
  obs::Registry registry_;
  EngineMetrics metrics_{registry_, "tiny"};
  obs::StepLog step_log_{64};
  Inbox inbox_{100};
  Outbox outbox_{10'000, [] {}};
  std::unique_ptr<exec::LocalExecutor> executor_;
  std::unique_ptr<kv::KvCaches> cache_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Client> client_;
  std::map<RequestId, TokenEvent> last_;
};

TEST_P(RankFailure, AnswersEveryRequestOnceAndRefusesTheRest) {
  std::vector<RequestId> ids;
  // More than run at once, so that some still wait; one is done before.
  const RequestId done = Submit(5, 2);
  for (int i = 0; i < 12; ++i) ids.push_back(Submit(10 + i, 60));
  Settle();
  EXPECT_TRUE(last_.at(done).status.ok());
  for (const RequestId id : ids) {
    EXPECT_EQ(last_.at(id).status.code(), ErrorCode::kUnavailable);
    EXPECT_NE(last_.at(id).status.message().find("a rank failed"), std::string::npos);
    EXPECT_TRUE(last_.at(id).finish);
  }
  EXPECT_TRUE(engine_->failed());
  Request late;
  late.id = client_->NewId();
  late.prompt = {1};
  EXPECT_EQ(client_->Submit(std::move(late)).code(), ErrorCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RankFailure,
                         ::testing::Values(Layout{"tp2", 2}, Layout{"ep2", 2, 1, 2},
                                           Layout{"dep4", 4, 4}, Layout{"dp2_tp2", 4, 2}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hayate::engine
