#pragma once
// What a Connection and the ResponseWriter of its current request share. Owner: the connection's
// loop thread, so the count behind the shared_ptr is the only thing that needs no care.

#include <functional>

namespace hayate::http {

class Connection;

struct Exchange {
  enum class Phase { kUnanswered, kStreaming, kFinished };

  Connection* connection = nullptr;  // null once finished or closed
  Phase phase = Phase::kUnanswered;
  bool closed = false;  // the client went away first
  std::function<void()> on_close;
};

}  // namespace hayate::http
