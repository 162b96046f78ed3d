#include "engine/inbox.h"

#include <chrono>
#include <utility>

#include "base/error.h"

namespace hayate::engine {

void InboxBatch::Clear() {
  requests.clear();
  cancels.clear();
  flushes.clear();
  pauses.clear();
  updates.clear();
  abort_all = false;
}

Status Inbox::ShuttingDown() {
  return Status(ErrorCode::kUnavailable, "the server is shutting down");
}

Status Inbox::TryPush(Request&& request) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return ShuttingDown();
    if (pending_.requests.size() >= max_requests_) {
      return Error(ErrorCode::kResourceExhausted,
                   "{} requests are waiting to be admitted; try again later", max_requests_);
    }
    pending_.requests.push_back(std::move(request));
  }
  arrived_.notify_one();
  return OkStatus();
}

void Inbox::PushCancel(Cancel cancel) {
  {
    std::lock_guard lock(mutex_);
    pending_.cancels.push_back(cancel);
  }
  arrived_.notify_one();
}

void Inbox::PushAbortAll() {
  {
    std::lock_guard lock(mutex_);
    pending_.abort_all = true;
  }
  arrived_.notify_one();
}

std::future<Status> Inbox::PushFlush() {
  std::promise<Status> promise;
  std::future<Status> future = promise.get_future();
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      promise.set_value(ShuttingDown());
      return future;
    }
    pending_.flushes.push_back(std::move(promise));
  }
  arrived_.notify_one();
  return future;
}

std::future<Status> Inbox::PushPause(std::optional<PauseMode> mode) {
  PauseCommand command{.mode = mode};
  std::future<Status> future = command.done.get_future();
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      command.done.set_value(ShuttingDown());
      return future;
    }
    pending_.pauses.push_back(std::move(command));
  }
  arrived_.notify_one();
  return future;
}

std::future<Status> Inbox::PushUpdate(WeightUpdate update) {
  WeightUpdateCommand command{.update = std::move(update), .done = {}};
  std::future<Status> future = command.done.get_future();
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      command.done.set_value(ShuttingDown());
      return future;
    }
    pending_.updates.push_back(std::move(command));
  }
  arrived_.notify_one();
  return future;
}

void Inbox::Drain(InboxBatch& batch) {
  batch.Clear();
  std::lock_guard lock(mutex_);
  std::swap(batch, pending_);
}

void Inbox::Wait(std::optional<int64_t> timeout_ns) {
  std::unique_lock lock(mutex_);
  if (timeout_ns) {
    arrived_.wait_for(lock, std::chrono::nanoseconds(*timeout_ns), [&] { return Ready(); });
  } else {
    arrived_.wait(lock, [&] { return Ready(); });
  }
}

void Inbox::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_all();
}

bool Inbox::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace hayate::engine
