#pragma once
// What travels up to the engine thread: requests, cancels, operator commands. Any thread pushes,
// the engine thread drains. Requests are bounded; a cancel is always taken (at most one per live
// request is ever useful, and repeated ones are dropped at the next drain).

#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "core/ids.h"
#include "core/request.h"
#include "engine/pause_mode.h"
#include "engine/weight_update.h"

namespace hayate::engine {

enum class CancelReason : uint8_t {
  kUnwanted,  // the client asked, or is gone
  kComplete,  // the answer is whole: a stop string in its text, which the engine does not see
};

struct Cancel {
  RequestId id;
  CancelReason reason = CancelReason::kUnwanted;
};

// /pause_generation, or /continue_generation without a mode. Fulfilled by the engine thread: a
// pause once no step is in flight.
struct PauseCommand {
  std::optional<PauseMode> mode;
  std::promise<Status> done;
};

// Everything that arrived since the last drain, in order within each kind. Requests come first: a
// cancel that follows its request finds it.
struct InboxBatch {
  std::vector<Request> requests;
  std::vector<Cancel> cancels;
  std::vector<std::promise<Status>> flushes;  // /flush_cache: fulfilled by the engine thread
  std::vector<PauseCommand> pauses;
  std::vector<WeightUpdateCommand> updates;
  bool abort_all = false;

  bool empty() const {
    return requests.empty() && cancels.empty() && flushes.empty() && pauses.empty() &&
           updates.empty() && !abort_all;
  }
  void Clear();
};

class Inbox {
 public:
  explicit Inbox(size_t max_requests) : max_requests_(max_requests) {}

  // kResourceExhausted when `max_requests` wait already, kUnavailable after Close.
  Status TryPush(Request&& request);
  void PushCancel(Cancel cancel);
  void PushAbortAll();
  // The future is ready once the engine has flushed or refused.
  std::future<Status> PushFlush();
  // Pauses, or with nullopt goes on.
  std::future<Status> PushPause(std::optional<PauseMode> mode);
  // kUnavailable while another one is under way.
  std::future<Status> PushUpdate(WeightUpdate update);

  // Moves everything out; `batch` is cleared first. Engine thread.
  void Drain(InboxBatch& batch);
  // Blocks until something arrives, the inbox closes, or `timeout_ns` passes (nullopt: no limit).
  void Wait(std::optional<int64_t> timeout_ns);

  // Refuses requests from here on; cancels and commands still pass. Wakes the engine.
  void Close();
  bool closed() const;

 private:
  bool Ready() const { return !pending_.empty() || closed_; }
  // What an operator's command answers after Close.
  static Status ShuttingDown();

  const size_t max_requests_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  InboxBatch pending_;
  bool closed_ = false;
};

}  // namespace hayate::engine
