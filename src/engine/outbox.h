#pragma once
// Token events on their way from the engine thread to one http thread. The engine never waits here:
// a full outbox refuses, and the engine cancels the request whose reader is too slow.

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "core/ids.h"
#include "core/token_event.h"

namespace hayate::engine {

class Outbox {
 public:
  // `wake` tells the reader to drain; called on the engine thread when an empty outbox gets events.
  // It must not block.
  Outbox(size_t capacity, std::function<void()> wake)
      : capacity_(capacity), wake_(std::move(wake)) {}

  // Takes the events of one step and leaves `events` empty. At capacity, events that carry no
  // finish are refused and the ids of their requests appended to `refused`; final events always
  // fit: there is at most one per request. Engine thread.
  void Push(std::vector<TokenEvent>& events, std::vector<RequestId>& refused);

  // Moves everything out; `events` is cleared first. The reader's thread.
  void Drain(std::vector<TokenEvent>& events);

 private:
  const size_t capacity_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<TokenEvent> pending_;
};

}  // namespace hayate::engine
