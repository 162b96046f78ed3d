#pragma once
// Keeps requests off a worker that fails them.
//
//   closed ──failure_threshold failures in a row──→ open ──open_ns, or OnAlive──→ half-open
//      ↑──────── success_threshold trials succeed ─────────────────────────────────┘ │
//                                                open ←──────── a trial fails ───────┘
//
// Half-open lets one trial through at a time, and another when the last has neither failed nor
// ended within kTrialPatienceNs: a long answer holds nobody up. Pure: time is an argument. Every
// Admit() is followed by exactly one of Succeed, Fail, Abandon with what it returned.

#include <cstdint>

namespace hayate::gateway {

class CircuitBreaker {
 public:
  struct Options {
    bool enabled = true;
    int failure_threshold = 10;
    int success_threshold = 2;
    int64_t open_ns = 60'000'000'000;
    int64_t window_ns = 120'000'000'000;  // a failure this long ago is forgotten
  };
  enum class State : uint8_t { kClosed, kOpen, kHalfOpen };
  enum class Pass : uint8_t { kFree, kTrial };
  static constexpr int64_t kTrialPatienceNs = 1'000'000'000;

  explicit CircuitBreaker(const Options& options) : options_(options) {}

  // Whether a request may start. Moves from open to half-open when its time is over.
  bool Allows(int64_t now_ns);
  Pass Admit(int64_t now_ns);
  void Succeed(Pass pass);
  void Fail(Pass pass, int64_t now_ns);
  // The outcome says nothing of the worker: the client left, or the worker was only busy.
  void Abandon(Pass pass);

  // A worker whose connections broke was asked since, and is well: an open breaker need not wait
  // out its time. When the trials that followed failed nonetheless this counts ever later, up to
  // open_ns.
  void OnAlive(int64_t now_ns);
  // The worker was down and is back. What was counted is of another life; trials come first.
  void OnReturn();

  State state() const { return state_; }
  // When an open breaker will let a trial through.
  int64_t open_until_ns() const { return open_until_ns_; }
  uint64_t times_opened() const { return times_opened_; }

 private:
  void Open(int64_t now_ns);
  void HalfOpen();

  Options options_;
  State state_ = State::kClosed;
  int failures_ = 0;    // in a row
  int successes_ = 0;   // in a row, half-open
  int reopenings_ = 0;  // since it was last closed
  bool trial_ = false;  // one is under way
  int64_t trial_since_ns_ = 0;
  int64_t last_failure_ns_ = 0;
  int64_t open_until_ns_ = 0;
  int64_t believe_after_ns_ = 0;  // what OnAlive says counts from here on
  uint64_t times_opened_ = 0;
};

}  // namespace hayate::gateway
