#pragma once
// Whether a worker is up, from active probes and from connections that it refused.
//
//   pending ──first good probe──→ up ──failure_threshold bad probes, or OnLost──→ down
//                                  ↑──────── success_threshold good probes ──────┘
//
// A worker that came up is eased in: its weight grows from kFirstWeight to 1 over slow_start_ns.
// One that went down is looked at soon, then ever more seldom: most come back within seconds.
// Pure: time is an argument.

#include <cstdint>

namespace hayate::gateway {

class Health {
 public:
  struct Options {
    int failure_threshold = 3;
    int success_threshold = 2;
    int64_t interval_ns = 10'000'000'000;
    // While a worker is pending or down it is looked at this often, at first more often.
    int64_t recovery_interval_ns = 1'000'000'000;
    int64_t slow_start_ns = 10'000'000'000;
    // Workers begin up, at full weight: a predecessor that served them hands over its connections
    // before they have been looked at.
    bool assume_up = false;
  };
  enum class State : uint8_t { kPending, kUp, kDown };
  static constexpr double kFirstWeight = 0.1;
  static constexpr int64_t kFirstRecoveryNs = 100'000'000;

  explicit Health(const Options& options)
      : options_(options), state_(options.assume_up ? State::kUp : State::kPending) {}

  void OnProbe(bool good, int64_t now_ns);
  // The kernel says that nobody listens, or a probe failed after a connection broke: no need to
  // ask twice.
  void OnLost(int64_t now_ns);
  // It is well but new, or doubted: it is eased in again.
  void EaseIn(int64_t now_ns) { up_since_ns_ = now_ns; }

  State state() const { return state_; }
  int64_t next_probe_ns() const { return next_probe_ns_; }
  // In [kFirstWeight, 1].
  double Weight(int64_t now_ns) const;

 private:
  void Rise(int64_t now_ns);
  void Fall();
  int64_t NextWait();

  Options options_;
  State state_;
  int bad_ = 0;   // in a row
  int good_ = 0;  // in a row
  int64_t up_since_ns_ = INT64_MIN / 2;
  int64_t next_probe_ns_ = 0;
  int64_t recovery_ns_ = kFirstRecoveryNs;  // to the next probe while down
};

}  // namespace hayate::gateway
