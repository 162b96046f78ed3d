#include "gateway/waiting_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/rng.h"

namespace hayate::gateway {
namespace {

using Ticket = WaitingRoom::Ticket;

TEST(WaitingRoom, WakesTheFirstOfEachLineAsFarAsThereIsRoom) {
  WaitingRoom room(10);
  const WaitingRoom::Pool a{.model = "a"};
  const WaitingRoom::Pool b{.model = "b"};
  const Ticket a1 = *room.Enter(a);
  const Ticket b1 = *room.Enter(b);
  const Ticket a2 = *room.Enter(a);
  std::vector<Ticket> woken;
  const auto room_of = [](const WaitingRoom::Pool& pool) { return pool.model == "a" ? 1 : 0; };
  room.Wake(room_of, woken);
  EXPECT_EQ(woken, std::vector<Ticket>{a1});
  room.Wake(room_of, woken);  // a1 has not gone yet: there is room for it alone
  EXPECT_EQ(woken.size(), 1u);
  EXPECT_TRUE(room.HasLine(a));
  room.WaitAgain(a1);
  woken.clear();
  room.Wake(room_of, woken);
  EXPECT_EQ(woken, std::vector<Ticket>{a1});  // in its old place
  room.Leave(a1);
  woken.clear();
  room.Wake([](const auto&) { return 100; }, woken);
  EXPECT_EQ(woken, (std::vector<Ticket>{a2, b1}));
  EXPECT_FALSE(room.HasLine(a));
}

TEST(WaitingRoom, IsBounded) {
  WaitingRoom room(2);
  const WaitingRoom::Pool pool{};
  const Ticket first = *room.Enter(pool);
  EXPECT_TRUE(room.Enter(pool));
  EXPECT_FALSE(room.Enter(pool));
  room.Leave(first);
  EXPECT_TRUE(room.Enter(pool));
  EXPECT_FALSE(WaitingRoom(0).Enter(pool));
}

// Against a deque for each pool.
TEST(WaitingRoom, KeepsTheOrderOfArrivalWhateverHappens) {
  Rng rng(7);
  WaitingRoom room(64);
  std::vector<WaitingRoom::Pool> pools(3);
  for (size_t i = 0; i < pools.size(); ++i)
    pools[i].model = std::string(1, static_cast<char>('a' + i));
  std::vector<std::deque<Ticket>> waiting(pools.size());
  std::vector<std::vector<Ticket>> awake(pools.size());
  const auto size = [&] {
    size_t total = 0;
    for (size_t i = 0; i < pools.size(); ++i) total += waiting[i].size() + awake[i].size();
    return total;
  };
  for (int step = 0; step < 50'000; ++step) {
    const size_t p = rng.Below(static_cast<uint32_t>(pools.size()));
    switch (rng.Below(5)) {
      case 0:
      case 1: {
        const auto ticket = room.Enter(pools[p]);
        ASSERT_EQ(ticket.has_value(), size() < 64);
        if (ticket) waiting[p].push_back(*ticket);
        break;
      }
      case 2: {
        const int64_t free = rng.Below(4);
        std::vector<Ticket> woken;
        room.Wake([&](const auto& pool) { return pool == pools[p] ? free : 0; }, woken);
        while (static_cast<int64_t>(awake[p].size()) < free && !waiting[p].empty()) {
          ASSERT_FALSE(woken.empty());
          ASSERT_EQ(woken.front(), waiting[p].front());
          awake[p].push_back(woken.front());
          woken.erase(woken.begin());
          waiting[p].pop_front();
        }
        ASSERT_TRUE(woken.empty());
        break;
      }
      case 3: {
        if (awake[p].empty()) break;
        const Ticket ticket = awake[p].back();
        awake[p].pop_back();
        if (rng.Below(2) == 0) {
          room.Leave(ticket);
        } else {
          room.WaitAgain(ticket);
          waiting[p].insert(std::lower_bound(waiting[p].begin(), waiting[p].end(), ticket), ticket);
        }
        break;
      }
      default: {
        if (waiting[p].empty()) break;
        const auto at = waiting[p].begin() + rng.Below(static_cast<uint32_t>(waiting[p].size()));
        room.Leave(*at);
        waiting[p].erase(at);
      }
    }
    ASSERT_EQ(room.size(), static_cast<int64_t>(size()));
    ASSERT_EQ(room.HasLine(pools[p]), !waiting[p].empty());
  }
}

}  // namespace
}  // namespace hayate::gateway
