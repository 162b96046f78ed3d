#pragma once
// The flight recorder: one fixed-size record per engine step in a bounded ring, always on. It
// answers "what did the last N steps look like" for the operator, for the metrics and after a
// crash.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hayate::obs {

struct StepRecord {
  int64_t step = 0;      // counts up by one; assigned by StepLog
  int64_t start_ns = 0;  // engine clock, when planning began
  int64_t plan_ns = 0;   // durations of the step's parts
  int64_t wait_start_ns = 0;
  int64_t wait_ns = 0;  // the engine waited for the result
  int64_t device_start_ns = 0;
  int64_t forward_ns = 0;
  int64_t commit_ns = 0;
  int32_t num_rows = 0;
  int32_t num_prefill_tokens = 0;
  int32_t num_decode_tokens = 0;
  int32_t num_draft_tokens = 0;
  int32_t num_accepted_tokens = 0;
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_retracted = 0;
  int32_t num_pages_used = 0;    // pinned by running sequences
  int32_t num_pages_cached = 0;  // reusable and evictable
};

// One writer (the engine thread); any number of readers on any thread. Neither ever waits: each
// slot is a sequence lock, and a reader leaves out records that are overwritten while it copies
// them.
class StepLog {
 public:
  // Keeps the last `capacity` steps.
  explicit StepLog(size_t capacity);

  // Writer only. Sets record.step.
  void Append(StepRecord record);

  // The newest `max_records` that are still there, oldest first.
  std::vector<StepRecord> Snapshot(size_t max_records) const;

  int64_t num_steps() const { return num_steps_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kNumWords = sizeof(StepRecord) / sizeof(uint64_t);
  static_assert(sizeof(StepRecord) % sizeof(uint64_t) == 0);

  struct Slot {
    // 2·step + 1 while that step is being written, 2·step + 2 once it is complete, 0 when never
    // used.
    std::atomic<uint64_t> version{0};
    std::array<std::atomic<uint64_t>, kNumWords> words{};
  };
  bool Read(int64_t step, StepRecord& record) const;

  size_t capacity_;
  std::unique_ptr<Slot[]> slots_;  // [capacity_]; step s lives in slot s % capacity_
  // Release pairs with the acquire in num_steps(): steps below it are complete.
  std::atomic<int64_t> num_steps_{0};
};

}  // namespace hayate::obs
