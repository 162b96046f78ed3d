#pragma once
// What a Connection and the ResponseWriter of its current request share. Owner: the connection's
// loop thread.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "http/response_writer.h"

namespace hayate::http {

class Connection;
class Pipe;

struct Exchange {
  enum class Phase { kUnanswered, kStreaming, kFinished };

  Connection* connection = nullptr;  // null once finished or closed
  Phase phase = Phase::kUnanswered;
  bool closed = false;  // the client went away first
  std::function<void()> on_close;
  std::function<void()> on_drained;
  std::string fields;  // complete lines, for whatever answer follows
  Answered answered;
  std::function<void(const Answered&)> on_finish;
};

// What a Connection and the BodyStream of its current request share. Same owner.
struct BodyState {
  Connection* connection = nullptr;  // null once the body ended or the connection closed
  bool paused = true;
  std::function<void(std::string_view)> on_data;
  std::shared_ptr<Pipe> pipe;  // null: everything goes to on_data
  std::function<void(size_t)> on_piped;
  std::function<void(const Status&)> on_end;
};

}  // namespace hayate::http
