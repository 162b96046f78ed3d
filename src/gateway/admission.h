#pragma once
// Who may start, who waits, who is refused: a bounded number of requests under way, a bounded queue
// before it with deadlines and priority classes, and per-key limits.
//
//   Enter ──room──→ admitted ──Leave──→ (the queue's next is admitted)
//     │ full           ↑
//     ├──→ queued ─────┤ by class, oldest first; every kFairTurn-th grant goes to the oldest of all
//     │        └─ deadline, Cancel → gone
//     └──→ refused (queue full, rate or concurrency of the key)
//
// Pure: time is an argument. Owner: whoever holds the router's lock.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/token_bucket.h"

namespace hayate::gateway {

enum class Priority : uint8_t { kHigh, kNormal, kLow };
inline constexpr int kNumPriorities = 3;

// Limits of one API key; 0: none.
struct KeyLimits {
  double requests_per_second = 0.0;
  double tokens_per_second = 0.0;
  int64_t max_concurrent = 0;
};

class Admission {
 public:
  struct Options {
    int64_t max_concurrent = 0;  // 0: no limit, and then nothing queues
    int64_t max_queued = 100;
    int64_t queue_timeout_ns = 60'000'000'000;
    double requests_per_second = 0.0;  // of all together
  };
  using Ticket = uint64_t;
  // A key's place in the table; negative: no key. Limits of a key are set before its first Enter.
  using Key = int32_t;

  enum class Verdict : uint8_t { kAdmitted, kQueued, kRefused };
  enum class Reason : uint8_t { kNone, kQueueFull, kRate, kKeyRate, kKeyTokens, kKeyConcurrency };
  struct Answer {
    Verdict verdict = Verdict::kAdmitted;
    Reason reason = Reason::kNone;
    Ticket ticket = 0;          // for kAdmitted and kQueued
    int64_t retry_after_s = 1;  // for kRefused
  };

  explicit Admission(const Options& options);

  void SetKeyLimits(Key key, const KeyLimits& limits);

  // `prompt_tokens` is charged at once, the output with Leave.
  Answer Enter(Key key, Priority priority, int64_t prompt_tokens, int64_t now_ns);
  // An admitted one is over; who may start now is appended to `started`.
  void Leave(Ticket ticket, int64_t output_tokens, std::vector<Ticket>& started);
  // A queued one's client left. False when it is not queued (any more).
  bool Cancel(Ticket ticket);
  // Takes those out of the queue whose time is over.
  void Expire(int64_t now_ns, std::vector<Ticket>& expired);
  // When the next one expires.
  std::optional<int64_t> next_deadline_ns() const;

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_queued() const { return static_cast<int64_t>(queued_.size()); }
  int64_t num_running(Key key) const;

 private:
  static constexpr int kFairTurn = 4;

  struct KeyState {
    TokenBucket requests{0.0, 0.0};
    TokenBucket tokens{0.0, 0.0};
    int64_t max_concurrent = 0;
    int64_t taken = 0;  // running and queued
  };
  struct Waiting {
    Key key;
    int priority;
    int64_t deadline_ns;
  };

  KeyState* StateOf(Key key);
  void Release(Key key);
  void Forget(std::map<Ticket, Waiting>::iterator waiting);
  std::map<Ticket, Waiting>::iterator Next();

  Options options_;
  TokenBucket requests_;
  std::vector<KeyState> keys_;
  Ticket next_ticket_ = 1;
  std::map<Ticket, Key> running_;
  std::map<Ticket, Waiting> queued_;  // tickets grow: the first is the oldest
  std::array<std::set<Ticket>, kNumPriorities> classes_;
  std::set<std::pair<int64_t, Ticket>> deadlines_;
  uint64_t grants_ = 0;
};

}  // namespace hayate::gateway
