// The gateway's decisions under a virtual clock: arrivals, workers that are killed and come back,
// slow and busy ones, probes that take their time, workers that tell of their caches, clients that
// leave. Whatever the seed, no request is lost or answered twice, no limit is exceeded, nobody
// starves, killing costs no plain request that its retries can save, the killed return, and every
// count returns to zero.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <queue>

#include "base/rng.h"
#include "gateway/admission.h"
#include "gateway/router.h"
#include "text/prompt_blocks.h"

namespace hayate::gateway {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kLimit = 24;
constexpr int64_t kMaxQueued = 50;
constexpr int64_t kPatienceNs = 10'000 * kMs;  // in the queue, and in the waiting room
constexpr RetryOptions kRetry{};

struct SimWorker {
  WorkerId id;
  bool alive = true;
  int busy_above = 1000;  // answers 429 with more than so many requests
  int requests = 0;
  int life = 0;  // counts its restarts
  int served = 0;
};

enum class Outcome : uint8_t {
  kNone,
  kOk,
  kBrokenStream,
  kFailed,
  kNoWorker,
  kLate,
  kRefused,
  kGone
};

struct SimRequest {
  bool stream = false;
  std::vector<WorkerId> tried;
  int retries = 0;
  int unsent = 0;
  int answers = 0;
  Outcome outcome = Outcome::kNone;
  Admission::Ticket ticket = 0;
  WaitingRoom::Ticket place = 0;
  int64_t place_until_ns = 0;
};

// What may go wrong beside the killing.
enum class World : uint8_t { kOnlyKills, kFaultsToo };

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : world_(seed % 2 == 0 ? World::kOnlyKills : World::kFaultsToo),
        in_turn_(MakeOptions(seed).policy.name == "round_robin"),
        rng_(seed),
        retry_rng_(seed + 1),
        router_(MakeOptions(seed)),
        admission_(
            {.max_concurrent = kLimit, .max_queued = kMaxQueued, .queue_timeout_ns = kPatienceNs}),
        room_(kMaxQueued) {
    const int count = 1 + static_cast<int>(rng_.Below(5));
    for (int i = 0; i < count; ++i) {
      const auto id = router_.Add({.url = "http://w" + std::to_string(i) + ":80"});
      workers_.push_back({.id = *id});
      router_.OnFacts(*id, {.tells_cache = rng_.Below(2) == 0});
      router_.OnProbe(*id, true, 0);
      if (world_ == World::kFaultsToo && rng_.Below(4) == 0) workers_.back().busy_above = 3;
    }
  }

  void Run() {
    for (int i = 0; i < 120; ++i) At(rng_.Below(8000) * kMs, [this] { Arrive(); });
    for (int i = 0; i < 12; ++i) At(rng_.Below(8000) * kMs, [this] { Kill(); });
    for (int64_t t = 0; t < 90'000; t += 50) At(t * kMs, [this] { Tick(); });
    // Long after the last kill everything is as at first.
    for (int i = 0; i < 40; ++i) At((50'000 + 40 * i) * kMs, [this] { Arrive(); });
    At(49'999 * kMs, [this] {
      for (SimWorker& worker : workers_) worker.served = 0;
      late_from_ = requests_.size();
    });
    while (!events_.empty()) {
      auto event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      event.run();
      CheckLimits();
      if (::testing::Test::HasFatalFailure()) return;
    }
    CheckEnd();
  }

 private:
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
    options.policy.name = names[seed / 2 % names.size()];
    options.policy.seed = seed;
    options.breaker = {.failure_threshold = 3, .success_threshold = 2, .open_ns = 20'000 * kMs};
    options.health = {.interval_ns = 5'000 * kMs, .slow_start_ns = 1000 * kMs};
    return options;
  }

  void At(int64_t at_ns, std::function<void()> run) {
    events_.push({at_ns, order_++, std::move(run)});
  }
  int64_t Soon(int least_ms, uint32_t spread_ms) {
    return now_ns_ + (least_ms + static_cast<int64_t>(rng_.Below(spread_ms))) * kMs;
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
    requests_.push_back({.stream = rng_.Below(2) == 0});
    const auto answer = admission_.Enter(-1, static_cast<Priority>(rng_.Below(3)), 10, now_ns_);
    requests_[r].ticket = answer.ticket;
    if (answer.verdict == Admission::Verdict::kRefused) {
      EXPECT_EQ(admission_.num_queued(), kMaxQueued);
      return Answer(r, Outcome::kRefused);
    }
    if (answer.verdict == Admission::Verdict::kQueued) {
      queued_[answer.ticket] = r;
    } else {
      Attempt(r);
    }
  }

  static constexpr uint32_t kGroups = 7;
  static std::string PromptOf(uint32_t group) {
    return "prompt of group " + std::to_string(group) + std::string(200, 'x');
  }
  static std::vector<uint64_t> HashesOf(const std::string& prompt) {
    text::PromptBlocks blocks;
    text::HashPrompt(prompt, 0, text::kPromptBlockBytes, blocks);
    return blocks.hashes;
  }

  void Attempt(int r) {
    SimRequest& request = requests_[r];
    const WaitingRoom::Pool pool{};
    const std::string prompt = PromptOf(static_cast<uint32_t>(r) % kGroups);
    Router::Picked picked{.may_come = true};
    if (request.place != 0 || !room_.HasLine(pool)) {
      picked = router_.Pick(
          {.key = {.prompt = prompt, .sticky = prompt, .prompt_tokens = 50, .output_tokens = 20},
           .tried = request.tried},
          now_ns_);
    }
    if (!picked.lease) return Wait(r, pool);
    LeaveRoom(request);
    Send(r, *picked.lease);
  }

  void Wait(int r, const WaitingRoom::Pool& pool) {
    SimRequest& request = requests_[r];
    if (request.place != 0) return room_.WaitAgain(request.place);
    const auto place = room_.Enter(pool);
    if (!place) return Leave(r, Outcome::kNoWorker);
    request.place = *place;
    request.place_until_ns = now_ns_ + kPatienceNs;
    in_room_[*place] = r;
  }

  void LeaveRoom(SimRequest& request) {
    if (request.place == 0) return;
    room_.Leave(request.place);
    in_room_.erase(request.place);
    request.place = 0;
  }

  void Send(int r, const Lease& lease) {
    SimWorker& worker = Of(lease.worker);
    if (!worker.alive) return End(r, lease, AttemptEnd::kNoConnection, false);
    if (worker.requests >= worker.busy_above) return End(r, lease, AttemptEnd::kBusy, false);
    ++worker.requests;
    ++worker.served;
    const uint32_t fate = world_ == World::kOnlyKills ? 100 : rng_.Below(100);
    // A stream's client has bytes from here on.
    const int64_t first_ns = Soon(5, 60);
    At(Soon(65, 300), [this, r, lease, fate, first_ns, life = worker.life] {
      SimWorker& at = Of(lease.worker);
      if (at.life != life) return;  // told when it died
      --at.requests;
      running_.erase(r);
      End(r, lease,
          fate < 3   ? AttemptEnd::kFault
          : fate < 6 ? AttemptEnd::kCancelled
          : fate < 9 ? AttemptEnd::kBroken
                     : AttemptEnd::kOk,
          false);
    });
    running_[r] = {lease, first_ns};
  }

  void End(int r, const Lease& lease, AttemptEnd end, bool has_bytes) {
    SimRequest& request = requests_[r];
    if (router_.Finish(lease, end, now_ns_)) At(now_ns_, [this] { StartProbes(); });
    if (end == AttemptEnd::kOk) return Leave(r, Outcome::kOk);
    if (end == AttemptEnd::kCancelled) return Leave(r, Outcome::kGone);
    const RetryInput input{.end = end,
                           .retries_so_far = request.retries,
                           .unsent_so_far = request.unsent,
                           .client_has_bytes = has_bytes,
                           .safe_route = true,
                           .other_worker = lease.others_left};
    const auto decision = DecideRetry(kRetry, input, retry_rng_);
    if (!decision.retry) return Leave(r, has_bytes ? Outcome::kBrokenStream : Outcome::kFailed);
    ++(IsUnsent(end) ? request.unsent : request.retries);
    request.tried.push_back(lease.worker);
    At(now_ns_ + decision.delay_ns, [this, r] { Attempt(r); });
  }

  void Leave(int r, Outcome outcome) {
    Answer(r, outcome);
    std::vector<Admission::Ticket> started;
    admission_.Leave(requests_[r].ticket, 5, started);
    for (const auto ticket : started) {
      const int next = queued_.at(ticket);
      queued_.erase(ticket);
      At(now_ns_, [this, next] { Attempt(next); });
    }
  }

  void Answer(int r, Outcome outcome) {
    ++requests_[r].answers;
    requests_[r].outcome = outcome;
  }

  // kill -9: every connection breaks, the port closes, and after a while it is another process.
  void Kill() {
    SimWorker& worker = workers_[rng_.Below(static_cast<uint32_t>(workers_.size()))];
    if (!worker.alive) return;
    worker.alive = false;
    const int life = ++worker.life;
    worker.requests = 0;
    std::vector<int> broken;
    for (const auto& [r, run] : running_) {
      if (run.lease.worker == worker.id) broken.push_back(r);
    }
    for (const int r : broken) {
      const Running run = running_.at(r);
      running_.erase(r);
      // Its connections are told one by one.
      At(now_ns_ + rng_.Below(3) * kMs, [this, r, run] {
        End(r, run.lease, AttemptEnd::kBroken, requests_[r].stream && now_ns_ >= run.first_ns);
      });
    }
    const int64_t back_ns = Soon(20, 1500);
    At(back_ns, [this, id = worker.id] { Of(id).alive = true; });
    At(back_ns + 2500 * kMs, [this, id = worker.id, life] {
      if (Of(id).life != life) return;
      ASSERT_EQ(router_.Find(id)->state, WorkerState::kReady);
      if (world_ == World::kFaultsToo) return;
      (void)router_.Room(WaitingRoom::Pool{}, now_ns_);  // a breaker's time may be over
      ASSERT_NE(router_.Find(id)->breaker, CircuitBreaker::State::kOpen);
    });
  }

  void StartProbes() {
    for (const auto& probe : router_.DueProbes(now_ns_, 1000 * kMs)) {
      // What it sees is the worker as it is when the probe arrives; the word of it comes later.
      At(now_ns_ + rng_.Below(5) * kMs, [this, id = probe.id] {
        const bool good = Of(id).alive;
        At(now_ns_ + rng_.Below(20) * kMs, [this, id, good] {
          router_.OnProbe(id, good, now_ns_);
          Call();
        });
      });
    }
  }

  // Workers that tell of their caches tell at random, and what they told before they died is late.
  void ReadCaches() {
    for (const auto& read : router_.DueCacheReads(now_ns_, 1000 * kMs)) {
      const uint64_t epoch = static_cast<uint64_t>(Of(read.id).life) + 1;
      std::optional<CacheChanges> changes;
      if (Of(read.id).alive) {
        changes = CacheChanges{.cursor = {epoch, read.cursor.next + 1},
                               .whole = read.cursor.epoch != epoch,
                               .held = HashesOf(PromptOf(rng_.Below(kGroups))),
                               .dropped = HashesOf(PromptOf(rng_.Below(kGroups)))};
      }
      At(Soon(0, 100), [this, read, changes] { router_.OnCacheRead(read, changes, now_ns_); });
    }
  }

  // Those in the room for whom there is a worker.
  void Call() {
    std::vector<WaitingRoom::Ticket> woken;
    room_.Wake([this](const auto& pool) { return router_.Room(pool, now_ns_); }, woken);
    for (const auto place : woken) {
      At(now_ns_ + rng_.Below(2) * kMs, [this, place] {
        if (in_room_.contains(place)) Attempt(in_room_.at(place));
      });
    }
  }

  void Tick() {
    StartProbes();
    ReadCaches();
    Call();
    std::vector<Admission::Ticket> expired;
    admission_.Expire(now_ns_, expired);
    for (const auto ticket : expired) {
      Answer(queued_.at(ticket), Outcome::kLate);
      queued_.erase(ticket);
    }
    std::vector<int> late;
    for (const auto& [place, r] : in_room_) {
      if (requests_[r].place_until_ns <= now_ns_) late.push_back(r);
    }
    for (const int r : late) {
      LeaveRoom(requests_[r]);
      Leave(r, Outcome::kNoWorker);
    }
  }

  void CheckLimits() {
    ASSERT_LE(admission_.num_running(), kLimit);
    ASSERT_LE(admission_.num_queued(), kMaxQueued);
    ASSERT_LE(room_.size(), kMaxQueued);
    for (const auto& worker : router_.Workers()) {
      ASSERT_GE(worker.requests, 0);
      ASSERT_GE(worker.tokens, 0);
      ASSERT_LE(worker.requests, kLimit);
    }
  }

  void CheckEnd() {
    ASSERT_EQ(requests_.size(), 160u);
    for (size_t r = 0; r < requests_.size(); ++r) {
      const SimRequest& request = requests_[r];
      ASSERT_EQ(request.answers, 1) << r;
      if (request.outcome == Outcome::kBrokenStream) {
        ASSERT_TRUE(request.stream) << r;
      }
      if (world_ == World::kFaultsToo) continue;
      ASSERT_NE(request.outcome, Outcome::kNoWorker) << r;
      ASSERT_NE(request.outcome, Outcome::kLate) << r;
      if (request.outcome == Outcome::kFailed) {
        ASSERT_EQ(request.retries, kRetry.max_retries) << r;
      }
      if (r >= late_from_) {
        ASSERT_EQ(request.outcome, Outcome::kOk) << r;
      }
    }
    ASSERT_EQ(admission_.num_running(), 0);
    ASSERT_EQ(admission_.num_queued(), 0);
    ASSERT_EQ(room_.size(), 0);
    (void)router_.Room(WaitingRoom::Pool{}, now_ns_);
    for (const auto& worker : router_.Workers()) {
      ASSERT_EQ(worker.requests, 0);
      ASSERT_EQ(worker.tokens, 0);
      ASSERT_EQ(worker.state, WorkerState::kReady);
      if (world_ == World::kOnlyKills) {
        ASSERT_NE(worker.breaker, CircuitBreaker::State::kOpen);
      }
    }
    if (world_ == World::kFaultsToo || !in_turn_) return;
    for (const SimWorker& worker : workers_) ASSERT_GT(worker.served, 0);
  }

  struct Running {
    Lease lease;
    int64_t first_ns = 0;
  };

  const World world_;
  const bool in_turn_;  // every worker gets its share
  Rng rng_;
  Rng retry_rng_;
  Router router_;
  Admission admission_;
  WaitingRoom room_;
  std::vector<SimWorker> workers_;
  std::vector<SimRequest> requests_;
  size_t late_from_ = 0;
  std::map<int, Running> running_;
  std::map<Admission::Ticket, int> queued_;
  std::map<WaitingRoom::Ticket, int> in_room_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  int64_t now_ns_ = 0;
};

TEST(RouterSimulation, KeepsItsPromisesOverThousandsOfSeeds) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed).Run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace hayate::gateway
