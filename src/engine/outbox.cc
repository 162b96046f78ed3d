#include "engine/outbox.h"

#include <utility>

namespace hayate::engine {

void Outbox::Push(std::vector<TokenEvent>& events, std::vector<RequestId>& refused) {
  if (events.empty()) return;
  bool was_empty = false;
  {
    std::lock_guard lock(mutex_);
    was_empty = pending_.empty();
    for (TokenEvent& event : events) {
      if (pending_.size() >= capacity_ && !event.finish) {
        refused.push_back(event.id);
      } else {
        pending_.push_back(std::move(event));
      }
    }
  }
  events.clear();
  if (was_empty) wake_();
}

void Outbox::Drain(std::vector<TokenEvent>& events) {
  events.clear();
  std::lock_guard lock(mutex_);
  std::swap(events, pending_);
}

}  // namespace hayate::engine
