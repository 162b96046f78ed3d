#include "gateway/waiting_room.h"

#include "base/check.h"

namespace hayate::gateway {

std::optional<WaitingRoom::Ticket> WaitingRoom::Enter(const Pool& pool) {
  if (size() >= max_waiting_) return std::nullopt;
  const Ticket ticket = next_ticket_++;
  const auto line = lines_.try_emplace(pool).first;
  line->second.waiting.insert(ticket);
  places_.emplace(ticket, Place{.line = line});
  return ticket;
}

void WaitingRoom::WaitAgain(Ticket ticket) {
  const auto it = places_.find(ticket);
  CHECK(it != places_.end() && it->second.woken) << "ticket " << ticket << " is not awake";
  it->second.woken = false;
  --it->second.line->second.num_woken;
  it->second.line->second.waiting.insert(ticket);
}

void WaitingRoom::Leave(Ticket ticket) {
  const auto it = places_.find(ticket);
  CHECK(it != places_.end()) << "ticket " << ticket << " has no place";
  Line& line = it->second.line->second;
  if (it->second.woken) {
    --line.num_woken;
  } else {
    line.waiting.erase(ticket);
  }
  if (line.waiting.empty() && line.num_woken == 0) lines_.erase(it->second.line);
  places_.erase(it);
}

bool WaitingRoom::HasLine(const Pool& pool) const {
  const auto it = lines_.find(pool);
  return it != lines_.end() && !it->second.waiting.empty();
}

void WaitingRoom::Wake(const RoomOf& room_of, std::vector<Ticket>& woken) {
  for (auto& [pool, line] : lines_) {
    if (line.waiting.empty()) continue;
    const int64_t room = room_of(pool);
    while (!line.waiting.empty() && line.num_woken < room) {
      const Ticket ticket = *line.waiting.begin();
      line.waiting.erase(line.waiting.begin());
      places_.at(ticket).woken = true;
      ++line.num_woken;
      woken.push_back(ticket);
    }
  }
}

}  // namespace hayate::gateway
