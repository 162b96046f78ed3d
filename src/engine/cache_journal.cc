#include "engine/cache_journal.h"

#include <algorithm>
#include <random>

#include "base/check.h"

namespace hayate::engine {
namespace {

uint64_t DrawEpoch() {
  std::random_device entropy;
  return (uint64_t{entropy()} << 32 | entropy()) | 1;  // 0 is nobody's
}

}  // namespace

CacheJournal::CacheJournal() : epoch_(DrawEpoch()) {}

void CacheJournal::Append(std::vector<PrefixKeyChange>& changes, Patience patience) {
  if (changes.empty()) return;
  std::unique_lock lock(mutex_, std::defer_lock);
  if (patience == Patience::kWait) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  for (const PrefixKeyChange& change : changes) Apply(change);
  changes.clear();
}

// Only the first page with a name and the last one to lose it are news.
void CacheJournal::Apply(const PrefixKeyChange& change) {
  if (change.held) {
    if (++num_pages_[change.hash] > 1) return;
  } else {
    const auto it = num_pages_.find(change.hash);
    CHECK(it != num_pages_.end()) << "a name that no page carried";
    if (--it->second > 0) return;
    num_pages_.erase(it);
  }
  if (log_.size() < kLogSize) {
    log_.push_back(change);
  } else {
    log_[next_ % kLogSize] = change;
  }
  ++next_;
}

CacheReading CacheJournal::Everything() const {
  CacheReading reading{.epoch = epoch_, .next = next_, .whole = true};
  reading.held.reserve(num_pages_.size());
  for (const auto& [hash, pages] : num_pages_) reading.held.push_back(hash);
  return reading;
}

CacheReading CacheJournal::Read(uint64_t epoch, uint64_t after, size_t limit) const {
  const std::lock_guard lock(mutex_);
  if (limit == 0) return {.epoch = epoch_, .next = next_};
  const uint64_t first = next_ - std::min<uint64_t>(next_, kLogSize);
  if (epoch != epoch_ || after < first || after > next_) return Everything();
  CacheReading reading{.epoch = epoch_, .next = std::min<uint64_t>(next_, after + limit)};
  reading.more = reading.next < next_;
  // What came and went in between is told by how it ended.
  std::unordered_map<uint64_t, bool> last;
  for (uint64_t i = after; i < reading.next; ++i) {
    const PrefixKeyChange& change = log_[i % kLogSize];
    last[change.hash] = change.held;
  }
  for (const auto& [hash, held] : last) (held ? reading.held : reading.dropped).push_back(hash);
  return reading;
}

}  // namespace hayate::engine
