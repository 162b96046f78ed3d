#pragma once
// Time as an injected dependency, so that the whole engine runs under a virtual clock in tests.

#include <atomic>
#include <cstdint>

namespace hayate {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds from an arbitrary origin. Any thread.
  virtual int64_t NowNs() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

// Moves only when told to. Any thread may read; one thread advances.
class VirtualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(std::memory_order_relaxed); }
  void AdvanceNs(int64_t delta_ns) { now_ns_.fetch_add(delta_ns, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_ns_{0};  // a lone counter, publishes nothing else: relaxed
};

// Unix time in whole seconds, for the `created` fields of replies.
int64_t UnixSeconds();

}  // namespace hayate
