#pragma once
// What is cached, told to those who route requests: the names of prefixes that pages of the KV
// cache carry (core/prefix_key.h), and a log of how they changed. A reader keeps a cursor; one that
// is new, or too far behind, gets everything anew.
//
//   engine thread ──Append──▶ [ counts of names │ the last kLogSize changes ] ──Read──▶ any thread

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/prefix_key.h"

namespace hayate::engine {

struct CacheReading {
  uint64_t epoch = 0;  // of this journal: another one has other names and cursors
  uint64_t next = 0;   // where the next reading goes on
  bool whole = false;  // `held` is all there is; else names that came and went since
  bool more = false;   // the limit cut it short
  std::vector<uint64_t> held;
  std::vector<uint64_t> dropped;
};

class CacheJournal {
 public:
  static constexpr size_t kLogSize = 1 << 16;

  CacheJournal();

  // Takes the changes over; an empty list remains. Engine thread: with kNone it does not wait for a
  // reader (who copies for a millisecond at most), and leaves the changes for another time.
  enum class Patience : uint8_t { kNone, kWait };
  void Append(std::vector<PrefixKeyChange>& changes, Patience patience);

  // What changed from `after` on, at most `limit` changes; everything when the epoch is another one
  // or the log no longer reaches back. With a limit of 0 only the cursor.
  CacheReading Read(uint64_t epoch, uint64_t after, size_t limit) const;

 private:
  void Apply(const PrefixKeyChange& change);
  CacheReading Everything() const;

  const uint64_t epoch_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::unordered_map<uint64_t, uint32_t> num_pages_;  // by name
  std::vector<PrefixKeyChange> log_;                  // change i lies at i % kLogSize
  uint64_t next_ = 0;
};

}  // namespace hayate::engine
