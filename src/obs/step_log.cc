#include "obs/step_log.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace hayate::obs {

StepLog::StepLog(size_t capacity) : capacity_(capacity), slots_(new Slot[capacity]) {
  CHECK_GT(capacity, 0u);
}

// Words are stored with release so that none becomes visible before the odd version, and loaded
// with acquire so that none is read after the version check. On x86 both are plain moves.
void StepLog::Append(StepRecord record) {
  const int64_t step =
      num_steps_.load(std::memory_order_relaxed);  // this thread is the only writer
  record.step = step;
  const auto words = std::bit_cast<std::array<uint64_t, kNumWords>>(record);
  Slot& slot = slots_[static_cast<size_t>(step) % capacity_];
  const uint64_t version = 2 * static_cast<uint64_t>(step);
  slot.version.store(version + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < kNumWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
  num_steps_.store(step + 1, std::memory_order_release);
}

bool StepLog::Read(int64_t step, StepRecord& record) const {
  const Slot& slot = slots_[static_cast<size_t>(step) % capacity_];
  const uint64_t complete = 2 * static_cast<uint64_t>(step) + 2;
  if (slot.version.load(std::memory_order_acquire) != complete) return false;
  std::array<uint64_t, kNumWords> words;
  for (size_t i = 0; i < kNumWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
  if (slot.version.load(std::memory_order_relaxed) != complete) return false;
  record = std::bit_cast<StepRecord>(words);
  return true;
}

std::vector<StepRecord> StepLog::Snapshot(size_t max_records) const {
  const int64_t end = num_steps();
  const auto want = static_cast<int64_t>(std::min(max_records, capacity_));
  std::vector<StepRecord> records;
  records.reserve(static_cast<size_t>(std::min(want, end)));
  for (int64_t step = std::max<int64_t>(0, end - want); step < end; ++step) {
    StepRecord record;
    if (Read(step, record)) records.push_back(record);
  }
  return records;
}

}  // namespace hayate::obs
