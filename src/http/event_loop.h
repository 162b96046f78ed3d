#pragma once
// The loop under an IoThread: epoll, timers, posted tasks, and work put off to the end of a turn.
//
// One turn:  wait → socket events → timers → signals and posted tasks → turn-end work → free the
// dead
//
// Output is written at the end of a turn, so everything that a turn produced for one connection
// leaves in one system call. Objects closed during a turn stay allocated until its end, so an event
// later in the same turn never meets a dangling pointer.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hayate::http {

class Timer;

// Something with a descriptor. Loop thread only.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `events` are EPOLL* bits.
  virtual void OnEvents(uint32_t events) = 0;
  virtual void OnTurnEnd() {}

 private:
  friend class EventLoop;
  bool turn_end_requested_ = false;
  bool retired_ = false;
};

// A unit of wake-up: queued at most once at a time, so that signalling needs no bound.
class Signalled {
 public:
  virtual ~Signalled() = default;
  virtual void OnSignal() = 0;

 private:
  friend class EventLoop;
  // True from a signal until just before OnSignal, so a signal during OnSignal runs it again. The
  // signaller's exchange pairs with the loop's store: what was written before a signal is seen by
  // the OnSignal that answers it.
  std::atomic<bool> queued_{false};
};

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> Create(size_t max_posted);
  ~EventLoop();

  // Serves until Stop(). The calling thread becomes the loop thread.
  void Run();
  // Serves until `done` turns true, for a client that blocks its caller's thread.
  void RunUntil(const bool& done);

  // Any thread.
  void Stop();
  bool TryPost(std::function<void()> task);
  void Signal(std::shared_ptr<Signalled> signalled);
  bool IsCurrent() const { return std::this_thread::get_id() == owner_.load(); }

  // Loop thread, or before Run(). `events` as for epoll_ctl; EPOLLET is the caller's choice.
  Status Watch(int fd, uint32_t events, Watcher* watcher);
  // Must come before the descriptor is closed.
  void Unwatch(int fd);
  // Calls watcher->OnTurnEnd() once, at the end of this turn (or of the next when called from
  // there).
  void RequestTurnEnd(Watcher* watcher);
  // Frees the watcher at the end of the turn; nothing is delivered to it any more.
  void Retire(std::unique_ptr<Watcher> watcher);

  // Monotonic time, read once per turn.
  int64_t now_ns() const { return now_ns_; }
  // The deadline that far from now_ns().
  int64_t After(std::chrono::nanoseconds delay) const { return now_ns_ + delay.count(); }
  // For work begun between two RunUntil().
  void RefreshNow();

 private:
  friend class Timer;
  static constexpr int kMaxEventsPerTurn = 256;

  EventLoop(int epoll_fd, int wake_fd, size_t max_posted);
  void RunTurn();
  std::optional<timespec> WaitTimeout() const;  // nullopt: until something happens
  void FireTimers();
  void RunPosted();
  void RunTurnEnd();
  void Wake();  // holds mutex_

  const int epoll_fd_;
  const int wake_fd_;  // an eventfd
  const size_t max_posted_;
  std::atomic<std::thread::id> owner_{};
  int64_t now_ns_ = 0;

  // Owner: loop thread.
  std::set<std::pair<int64_t, Timer*>> timers_;
  std::vector<Watcher*> turn_end_;
  std::vector<std::unique_ptr<Watcher>> retired_;
  std::vector<std::function<void()>> running_tasks_;
  std::vector<std::shared_ptr<Signalled>> running_signals_;

  // Guarded by mutex_.
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::vector<std::shared_ptr<Signalled>> signals_;
  bool wake_pending_ = false;  // the eventfd is written and not yet read
  std::atomic<bool> stopping_{false};
};

// A deadline that is moved often and rarely fires: moving it later costs nothing. Loop thread only;
// must not outlive the loop.
class Timer {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  Timer(EventLoop& loop, std::function<void()> on_fire)
      : loop_(loop), on_fire_(std::move(on_fire)) {}
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Absolute, on the loop's clock; kNever disarms. A timer that fired is disarmed.
  void Set(int64_t deadline_ns);

 private:
  friend class EventLoop;
  EventLoop& loop_;
  std::function<void()> on_fire_;
  int64_t deadline_ns_ = kNever;
  int64_t queued_ns_ = kNever;  // its key in the loop's set, never later than deadline_ns_
};

}  // namespace hayate::http
