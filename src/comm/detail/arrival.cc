#include "comm/detail/arrival.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <climits>

namespace hayate::comm {
namespace {

// Longer than an exchange with a partner that runs, shorter than a scheduler's time slice: the
// price of a wrong guess stays below 1 % of what a lost slice costs.
constexpr auto kSpin = std::chrono::microseconds(40);
constexpr int kPausesPerClockRead = 16;
// A sleeper looks at the poison flag at least this often.
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 20'000'000};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool Reached(const Arrival& arrival, uint32_t count) {
  return static_cast<int32_t>(arrival.count.load(std::memory_order_acquire) - count) >= 0;
}

// The kernel compares and sleeps in one step, so an arrival between our look and the call is not
// missed.
void Sleep(Arrival& arrival, uint32_t seen) {
  ::syscall(SYS_futex, &arrival.count, FUTEX_WAIT_PRIVATE, seen, &kSleep, nullptr, 0);
}

}  // namespace

void Arrive(Arrival& arrival, uint32_t count) {
  // Sequentially consistent with the sleeper's increment: either it sees the new count, or we see
  // it.
  arrival.count.store(count, std::memory_order_seq_cst);
  if (arrival.sleepers.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &arrival.count, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void WaitFor(Arrival& arrival, uint32_t count, const std::atomic<bool>& poisoned) {
  if (Reached(arrival, count)) return;
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      Pause();
      if (Reached(arrival, count)) return;
    }
    if (poisoned.load(std::memory_order_relaxed)) return;  // a lone flag, publishes nothing
  } while (std::chrono::steady_clock::now() < give_up);

  arrival.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (!poisoned.load(std::memory_order_relaxed)) {
    const uint32_t seen = arrival.count.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - count) >= 0) break;
    Sleep(arrival, seen);
  }
  arrival.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace hayate::comm
