#pragma once
// A rank's place in the sequence of exchanges: it counts its arrivals up, and the others wait until
// the count reaches theirs. Waiting spins for a while, because a partner on its own core is
// microseconds away, and then sleeps in the kernel, because a partner without a core may be
// milliseconds away.

#include <atomic>
#include <cstdint>

namespace hayate::comm {

// One line for the writer and its readers, another for the rare sleepers. 128: the hardware
// prefetches lines in pairs.
struct alignas(128) Arrival {
  // Written by its rank alone. A release store here pairs with the acquire load in WaitFor and
  // publishes whatever the rank wrote before it.
  std::atomic<uint32_t> count{0};
  // What the rank shows to the others for this exchange: written before `count`.
  std::byte* shown = nullptr;
  alignas(128) std::atomic<uint32_t> sleepers{0};
};

// Sets the count and wakes who sleeps on it. Called by the owning rank.
void Arrive(Arrival& arrival, uint32_t count);

// Returns when `arrival` has reached `count`, or when `poisoned` is set. Counts wrap around.
void WaitFor(Arrival& arrival, uint32_t count, const std::atomic<bool>& poisoned);

}  // namespace hayate::comm
