#include "engine/cache_journal.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"

namespace hayate::engine {
namespace {

// Follows a journal as a router does.
struct Follower {
  uint64_t epoch = 0;
  uint64_t next = 0;
  std::set<uint64_t> held;
  int wholes = 0;

  void Read(const CacheJournal& journal, size_t limit) {
    bool more = true;
    while (more) {
      const CacheReading reading = journal.Read(epoch, next, limit);
      if (reading.whole) {
        held.clear();
        ++wholes;
      }
      held.insert(reading.held.begin(), reading.held.end());
      for (const uint64_t hash : reading.dropped) held.erase(hash);
      epoch = reading.epoch;
      next = reading.next;
      more = reading.more;
    }
  }
};

class Source {
 public:
  explicit Source(uint64_t seed) : rng_(seed) {}

  void Change(CacheJournal& journal, int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t hash = rng_.Below(300);
      if (pages_[hash] > 0 && rng_.Below(2) == 0) {
        --pages_[hash];
        changes_.push_back({hash, false});
      } else {
        ++pages_[hash];
        changes_.push_back({hash, true});
      }
    }
    journal.Append(changes_, CacheJournal::Patience::kWait);
    EXPECT_TRUE(changes_.empty());
  }
  std::set<uint64_t> Held() const {
    std::set<uint64_t> held;
    for (const auto& [hash, pages] : pages_) {
      if (pages > 0) held.insert(hash);
    }
    return held;
  }

 private:
  Rng rng_;
  std::map<uint64_t, int> pages_;
  std::vector<PrefixKeyChange> changes_;
};

TEST(CacheJournal, ReadersWhoKeepUpFollowFromChangesAlone) {
  CacheJournal journal;
  Source source(1);
  Follower follower;
  Rng rng(2);
  for (int round = 0; round < 500; ++round) {
    source.Change(journal, static_cast<int>(rng.Below(200)));
    const CacheReading before = journal.Read(follower.epoch, follower.next, 7);
    EXPECT_LE(before.dropped.size() + (before.whole ? 0 : before.held.size()), 7u);
    const size_t limit = 1 + rng.Below(100);
    follower.Read(journal, limit);
    ASSERT_EQ(follower.held, source.Held());
  }
  EXPECT_EQ(follower.wholes, 1);
}

TEST(CacheJournal, WhoFallsTooFarBehindOrKnewAnotherOneGetsEverything) {
  CacheJournal journal;
  Source source(3);
  Follower follower;
  source.Change(journal, 100);
  follower.Read(journal, 1000);
  std::vector<PrefixKeyChange> flicker;
  for (size_t i = 0; i < CacheJournal::kLogSize / 2 + 1; ++i) {
    flicker.push_back({999, true});
    flicker.push_back({999, false});
  }
  journal.Append(flicker, CacheJournal::Patience::kWait);
  source.Change(journal, 50);
  follower.Read(journal, 1000);
  EXPECT_EQ(follower.wholes, 2);
  EXPECT_EQ(follower.held, source.Held());

  CacheJournal successor;
  follower.Read(successor, 1000);
  EXPECT_EQ(follower.wholes, 3);
  EXPECT_TRUE(follower.held.empty());
  follower.next = 1'000'000;  // of a future that this journal has not seen
  follower.Read(successor, 1000);
  EXPECT_EQ(follower.wholes, 4);
  EXPECT_EQ(follower.next, 0u);
}

TEST(CacheJournal, ALimitOfZeroGivesTheCursorAlone) {
  CacheJournal journal;
  Source source(4);
  source.Change(journal, 50);
  const CacheReading reading = journal.Read(0, 0, 0);
  EXPECT_NE(reading.epoch, 0u);
  EXPECT_FALSE(reading.whole);
  EXPECT_TRUE(reading.held.empty());
}

}  // namespace
}  // namespace hayate::engine
