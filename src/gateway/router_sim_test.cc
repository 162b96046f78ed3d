// The gateway's decisions under a virtual clock: arrivals, worker crashes, slow and busy workers,
// clients that leave. Whatever the seed, no request is lost or answered twice, no limit is
// exceeded, nobody starves, and every count returns to zero.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <queue>

#include "base/rng.h"
#include "gateway/admission.h"
#include "gateway/router.h"

namespace hayate::gateway {
namespace {

constexpr int64_t kMs = 1'000'000;

struct SimWorker {
  WorkerId id;
  bool alive = true;
  int busy_above = 1000;  // answers 429 with more than so many requests
  int requests = 0;
};

struct SimRequest {
  int64_t arrived_ns = 0;
  std::vector<WorkerId> tried;
  int retries = 0;
  int answers = 0;
  Admission::Ticket ticket = 0;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : rng_(seed),
        retry_rng_(seed + 1),
        router_(MakeOptions(seed)),
        admission_({.max_concurrent = kLimit, .max_queued = 50, .queue_timeout_ns = 2000 * kMs}) {
    const int count = 2 + static_cast<int>(rng_.Below(5));
    for (int i = 0; i < count; ++i) {
      const auto id = router_.Add({.url = "http://w" + std::to_string(i) + ":80"});
      workers_.push_back({.id = *id});
      router_.OnProbe(*id, true, 0);
      if (rng_.Below(4) == 0) workers_.back().busy_above = 3;
    }
  }

  void Run() {
    for (int i = 0; i < kRequests; ++i) At(rng_.Below(4000) * kMs, [this] { Arrive(); });
    for (int i = 0; i < 12; ++i) At(rng_.Below(5000) * kMs, [this] { Flip(); });
    for (int64_t t = 0; t < 30'000; t += 250) At(t * kMs, [this] { Probe(); });
    while (!events_.empty()) {
      auto event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      event.run();
      CheckLimits();
    }
    CheckEnd();
  }

 private:
  static constexpr int kRequests = 120;
  static constexpr int64_t kLimit = 24;

  struct Event {
    int64_t at_ns;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  static RouterOptions MakeOptions(uint64_t seed) {
    RouterOptions options;
    const auto names = PolicyNames();
    options.policy.name = names[seed % names.size()];
    options.policy.seed = seed;
    options.breaker = {.failure_threshold = 3, .success_threshold = 1, .open_ns = 500 * kMs};
    options.health = {.recovery_interval_ns = 250 * kMs, .slow_start_ns = 1000 * kMs};
    return options;
  }

  void At(int64_t at_ns, std::function<void()> run) {
    events_.push({at_ns, order_++, std::move(run)});
  }
  SimWorker& Of(WorkerId id) {
    for (SimWorker& worker : workers_) {
      if (worker.id == id) return worker;
    }
    ADD_FAILURE() << "an unknown worker was picked";
    return workers_[0];
  }

  void Arrive() {
    const int r = static_cast<int>(requests_.size());
    requests_.push_back({.arrived_ns = now_ns_});
    const auto answer = admission_.Enter(-1, static_cast<Priority>(rng_.Below(3)), 10, now_ns_);
    requests_[r].ticket = answer.ticket;
    if (answer.verdict == Admission::Verdict::kRefused) return Answer(r);
    if (answer.verdict == Admission::Verdict::kQueued) {
      queued_[answer.ticket] = r;
    } else {
      Attempt(r);
    }
  }

  void Attempt(int r) {
    SimRequest& request = requests_[r];
    const std::string prompt = "prompt of group " + std::to_string(r % 7) + std::string(200, 'x');
    const auto picked = router_.Pick(
        {.key = {.prompt = prompt, .sticky = prompt, .prompt_tokens = 50, .output_tokens = 20},
         .tried = request.tried},
        now_ns_);
    if (!picked.lease) return Leave(r);  // 503
    SimWorker& worker = Of(picked.lease->worker);
    if (!worker.alive) return End(r, *picked.lease, AttemptEnd::kNoConnection);
    if (worker.requests >= worker.busy_above) return End(r, *picked.lease, AttemptEnd::kBusy);
    ++worker.requests;
    const int64_t took_ns = (20 + rng_.Below(300)) * kMs;
    const uint32_t fate = rng_.Below(100);
    const int incarnation = incarnations_[worker.id];
    At(now_ns_ + took_ns, [this, r, lease = *picked.lease, fate, incarnation] {
      SimWorker& at = Of(lease.worker);
      const bool died = incarnations_[at.id] != incarnation;
      if (!died) --at.requests;
      if (died) return End(r, lease, AttemptEnd::kBroken);
      End(r, lease,
          fate < 3   ? AttemptEnd::kFault
          : fate < 6 ? AttemptEnd::kCancelled
                     : AttemptEnd::kOk);
    });
  }

  void End(int r, const Lease& lease, AttemptEnd end) {
    SimRequest& request = requests_[r];
    router_.Finish(lease, end, now_ns_);
    const RetryInput input{.end = end,
                           .retries_so_far = request.retries,
                           .safe_route = true,
                           .other_worker = lease.others_left};
    const auto decision = DecideRetry({}, input, retry_rng_);
    if (!decision.retry) return Leave(r);
    ++request.retries;
    request.tried.push_back(lease.worker);
    At(now_ns_ + decision.delay_ns, [this, r] { Attempt(r); });
  }

  void Leave(int r) {
    Answer(r);
    std::vector<Admission::Ticket> started;
    admission_.Leave(requests_[r].ticket, 5, started);
    for (const auto ticket : started) {
      const int next = queued_.at(ticket);
      queued_.erase(ticket);
      Attempt(next);
    }
  }

  void Answer(int r) { ++requests_[r].answers; }

  void Flip() {
    SimWorker& worker = workers_[rng_.Below(static_cast<uint32_t>(workers_.size()))];
    worker.alive = !worker.alive;
    ++incarnations_[worker.id];
    worker.requests = 0;
    if (worker.alive) return;
    At(now_ns_ + 700 * kMs, [this, id = worker.id] { Of(id).alive = true; });
  }

  void Probe() {
    for (const auto& probe : router_.DueProbes(now_ns_, 1000 * kMs)) {
      router_.OnProbe(probe.id, Of(probe.id).alive, now_ns_);
    }
    std::vector<Admission::Ticket> expired;
    admission_.Expire(now_ns_, expired);
    for (const auto ticket : expired) {
      Answer(queued_.at(ticket));
      queued_.erase(ticket);
    }
  }

  void CheckLimits() {
    ASSERT_LE(admission_.num_running(), kLimit);
    for (const auto& worker : router_.Workers()) {
      ASSERT_GE(worker.requests, 0);
      ASSERT_GE(worker.tokens, 0);
      ASSERT_LE(worker.requests, kLimit);
    }
  }

  void CheckEnd() {
    for (size_t r = 0; r < requests_.size(); ++r) ASSERT_EQ(requests_[r].answers, 1) << r;
    ASSERT_EQ(requests_.size(), static_cast<size_t>(kRequests));
    ASSERT_EQ(admission_.num_running(), 0);
    ASSERT_EQ(admission_.num_queued(), 0);
    for (const auto& worker : router_.Workers()) {
      ASSERT_EQ(worker.requests, 0);
      ASSERT_EQ(worker.tokens, 0);
      ASSERT_EQ(worker.state, WorkerState::kReady);
    }
  }

  Rng rng_;
  Rng retry_rng_;
  Router router_;
  Admission admission_;
  std::vector<SimWorker> workers_;
  std::map<WorkerId, int> incarnations_;
  std::vector<SimRequest> requests_;
  std::map<Admission::Ticket, int> queued_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  int64_t now_ns_ = 0;
};

TEST(RouterSimulation, KeepsItsPromisesOverThousandsOfSeeds) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed).Run();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hayate::gateway
