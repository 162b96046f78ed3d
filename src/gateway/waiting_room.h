#pragma once
// Where requests wait while no worker can take them: every worker that serves their model is down,
// starting, or kept off by its breaker.
//
//   Enter ──→ waiting ──Wake──→ woken ──a worker is there: Leave
//                ↑                │
//                └──WaitAgain─────┘ none is, after all: in its old place
//
// One line for each pool, served in the order of arrival; who comes while others wait stands behind
// them. Bounded: beyond max_waiting nobody enters. Deadlines are the callers'. Pure. Owner: whoever
// holds the gateway's lock.

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace hayate::gateway {

class WaitingRoom {
 public:
  using Ticket = uint64_t;
  enum class Workers : uint8_t { kRegular, kPair, kDecode };
  // Requests of one pool can be served by the same workers.
  struct Pool {
    std::string model;
    Workers workers = Workers::kRegular;
    auto operator<=>(const Pool&) const = default;
  };
  // How many requests of a pool could start now.
  using RoomOf = std::function<int64_t(const Pool&)>;

  explicit WaitingRoom(int64_t max_waiting) : max_waiting_(max_waiting) {}

  // The last place in the pool's line; none when the room is full.
  std::optional<Ticket> Enter(const Pool& pool);
  // For a woken one.
  void WaitAgain(Ticket ticket);
  // Waiting or woken.
  void Leave(Ticket ticket);
  bool HasLine(const Pool& pool) const;
  // Wakes the first of each line, as many as there is room for beside those that are awake.
  void Wake(const RoomOf& room_of, std::vector<Ticket>& woken);

  int64_t size() const { return static_cast<int64_t>(places_.size()); }

 private:
  struct Line {
    std::set<Ticket> waiting;  // tickets grow: the first is the oldest
    int64_t num_woken = 0;
  };
  using Lines = std::map<Pool, Line>;
  struct Place {
    Lines::iterator line;
    bool woken = false;
  };

  int64_t max_waiting_;
  Ticket next_ticket_ = 1;
  Lines lines_;
  std::map<Ticket, Place> places_;
};

}  // namespace hayate::gateway
