#pragma once
// Keeps requests off a worker that fails them.
//
//   closed ──failure_threshold failures in a row──→ open ──open_ns──→ half-open (one probe at a
//   time)
//      ↑────────── success_threshold probes succeed ───────────────────┘  │ a probe fails → open
//
// Pure: time is an argument. Every Admit() is followed by exactly one of Succeed, Fail, Abandon.

#include <cstdint>

namespace hayate::gateway {

class CircuitBreaker {
 public:
  struct Options {
    bool enabled = true;
    int failure_threshold = 5;
    int success_threshold = 2;
    int64_t open_ns = 30'000'000'000;
    int64_t window_ns = 60'000'000'000;  // a failure this long ago is forgotten
  };
  enum class State : uint8_t { kClosed, kOpen, kHalfOpen };

  explicit CircuitBreaker(const Options& options) : options_(options) {}

  // Whether a request may start. Moves from open to half-open when its time is over.
  bool Allows(int64_t now_ns);
  void Admit();
  void Succeed();
  void Fail(int64_t now_ns);
  // The outcome says nothing of the worker: the client left, or the worker was only busy.
  void Abandon();

  State state() const { return state_; }
  // When an open breaker will let a probe through.
  int64_t open_until_ns() const { return open_until_ns_; }
  uint64_t times_opened() const { return times_opened_; }

 private:
  void Open(int64_t now_ns);

  Options options_;
  State state_ = State::kClosed;
  int failures_ = 0;   // in a row
  int successes_ = 0;  // in a row, half-open
  bool probing_ = false;
  int64_t last_failure_ns_ = 0;
  int64_t open_until_ns_ = 0;
  uint64_t times_opened_ = 0;
};

}  // namespace hayate::gateway
