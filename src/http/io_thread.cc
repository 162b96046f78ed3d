#include "http/io_thread.h"

#include <utility>

#include "http/event_loop.h"

namespace hayate::http {

Result<std::unique_ptr<IoThread>> IoThread::Start(Options options) {
  ASSIGN_OR_RETURN(auto loop, EventLoop::Create(options.max_posted));
  return std::unique_ptr<IoThread>(new IoThread(std::move(options), std::move(loop)));
}

IoThread::IoThread(Options options, std::unique_ptr<EventLoop> loop)
    : index_(options.index),
      loop_(std::move(loop)),
      thread_(std::move(options.name), [loop_pointer = loop_.get()] { loop_pointer->Run(); }) {}

IoThread::~IoThread() { Stop(); }

void IoThread::Stop() {
  loop_->Stop();
  thread_.Join();
}

bool IoThread::TryPost(std::function<void()> task) { return loop_->TryPost(std::move(task)); }

bool IoThread::IsCurrent() const { return loop_->IsCurrent(); }

// Owned by the Wakeup and, while a signal is queued, by the loop.
struct Wakeup::State final : Signalled {
  explicit State(std::function<void()> handler) : on_wake(std::move(handler)) {}
  void OnSignal() override {
    if (!disarmed) on_wake();
  }
  std::function<void()> on_wake;
  std::atomic<bool> disarmed{false};
};

Wakeup::Wakeup(IoThread& thread, std::function<void()> on_wake)
    : loop_(thread.loop()), state_(std::make_shared<State>(std::move(on_wake))) {}

Wakeup::~Wakeup() { state_->disarmed = true; }

void Wakeup::Signal() { loop_.Signal(state_); }

}  // namespace hayate::http
