#pragma once
// What a Connection and the ResponseWriter of its current request share. Owner: the connection's
// loop thread.

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
