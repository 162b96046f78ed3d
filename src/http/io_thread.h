#pragma once
// A thread that serves sockets. Everything that belongs to a connection lives on one IoThread;
// other threads reach it by values only: a posted task, or a Wakeup beside a queue of their own.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/thread.h"

namespace hayate::http {

class EventLoop;

class IoThread {
 public:
  struct Options {
    std::string name = "http";
    int index = 0;              // what index() returns
    size_t max_posted = 65536;  // tasks that may wait; beyond it TryPost refuses
  };

  // kIo when the kernel gives no more descriptors.
  static Result<std::unique_ptr<IoThread>> Start(Options options);
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Any thread, never blocks. Runs `task` on this thread, tasks of one caller in their order.
  // False, and the task is dropped, when max_posted tasks wait or the thread is stopping.
  bool TryPost(std::function<void()> task);

  // Stops and joins. Tasks that still wait are dropped, not run. Never on the thread itself.
  void Stop();

  // The position among its siblings, for tables of per-thread state.
  int index() const { return index_; }
  bool IsCurrent() const;

  EventLoop& loop() { return *loop_; }

 private:
  IoThread(Options options, std::unique_ptr<EventLoop> loop);

  int index_;
  std::unique_ptr<EventLoop> loop_;
  NamedThread thread_;
};

// Tells an IoThread that a queue beside it has something. Signals that come before the handler has
// run are one: a burst of events costs one wake-up. A signal is never refused or lost.
//
//   engine thread:  outbox.TryPush(event); wakeup.Signal();
//   http thread:    on_wake drains the outbox
class Wakeup {
 public:
  // `on_wake` runs on `thread` and never after this object's destructor when that runs on `thread`
  // too.
  Wakeup(IoThread& thread, std::function<void()> on_wake);
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // Any thread, never blocks, allocates nothing once warm.
  void Signal();

 private:
  struct State;
  EventLoop& loop_;
  std::shared_ptr<State> state_;
};

}  // namespace hayate::http
