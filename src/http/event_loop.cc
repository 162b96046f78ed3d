#include "http/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hayate::http {
namespace {

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create(size_t max_posted) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return Error(ErrorCode::kIo, "epoll_create1: {}", std::strerror(errno));
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    const int error = errno;
    close(epoll_fd);
    return Error(ErrorCode::kIo, "eventfd: {}", std::strerror(error));
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(epoll_fd, wake_fd, max_posted));
  RETURN_IF_ERROR(loop->Watch(wake_fd, EPOLLIN, nullptr));
  return loop;
}

EventLoop::EventLoop(int epoll_fd, int wake_fd, size_t max_posted)
    : epoll_fd_(epoll_fd), wake_fd_(wake_fd), max_posted_(max_posted), now_ns_(MonotonicNs()) {}

EventLoop::~EventLoop() {
  retired_.clear();
  CHECK(timers_.empty()) << "a Timer outlives its loop";
  close(wake_fd_);
  close(epoll_fd_);
}

void EventLoop::Run() {
  owner_ = std::this_thread::get_id();
  while (!stopping_) RunTurn();
}

void EventLoop::RunUntil(const bool& done) {
  owner_ = std::this_thread::get_id();
  while (!done && !stopping_) RunTurn();
}

void EventLoop::RunTurn() {
  std::array<epoll_event, kMaxEventsPerTurn> events;
  const std::optional<timespec> timeout = WaitTimeout();
  const int count = epoll_pwait2(epoll_fd_, events.data(), kMaxEventsPerTurn,
                                 timeout ? &*timeout : nullptr, nullptr);
  CHECK(count >= 0 || errno == EINTR) << "epoll_pwait2: " << std::strerror(errno);
  RefreshNow();
  for (int i = 0; i < count; ++i) {
    auto* watcher = static_cast<Watcher*>(events[i].data.ptr);
    if (watcher != nullptr && !watcher->retired_) watcher->OnEvents(events[i].events);
  }
  FireTimers();
  RunPosted();
  RunTurnEnd();
  std::vector<std::unique_ptr<Watcher>> dead;
  dead.swap(retired_);
}

void EventLoop::RefreshNow() { now_ns_ = MonotonicNs(); }

std::optional<timespec> EventLoop::WaitTimeout() const {
  if (!turn_end_.empty()) return timespec{};
  if (timers_.empty()) return std::nullopt;
  const int64_t left_ns = std::max<int64_t>(0, timers_.begin()->first - MonotonicNs());
  return timespec{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
}

void EventLoop::FireTimers() {
  while (!timers_.empty() && timers_.begin()->first <= now_ns_) {
    Timer* timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    timer->queued_ns_ = Timer::kNever;
    const int64_t deadline_ns = timer->deadline_ns_;
    if (deadline_ns == Timer::kNever) continue;
    timer->deadline_ns_ = Timer::kNever;
    if (deadline_ns > now_ns_) {
      timer->Set(deadline_ns);
    } else {
      timer->on_fire_();
    }
  }
}

void EventLoop::RunPosted() {
  {
    std::lock_guard lock(mutex_);
    if (wake_pending_) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
      wake_pending_ = false;
    }
    running_tasks_.swap(tasks_);
    running_signals_.swap(signals_);
  }
  for (auto& signalled : running_signals_) {
    signalled->queued_ = false;
    signalled->OnSignal();
  }
  running_signals_.clear();
  for (auto& task : running_tasks_) task();
  running_tasks_.clear();
}

void EventLoop::RunTurnEnd() {
  // What is requested from here on belongs to the next turn, which then does not wait.
  std::vector<Watcher*> batch;
  batch.swap(turn_end_);
  for (Watcher* watcher : batch) {
    watcher->turn_end_requested_ = false;
    if (!watcher->retired_) watcher->OnTurnEnd();
  }
  std::erase_if(turn_end_, [](Watcher* watcher) { return watcher->retired_; });
  if (turn_end_.empty()) {  // keep the capacity: the list is rebuilt every turn
    batch.clear();
    turn_end_.swap(batch);
  }
}

void EventLoop::Stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  Wake();
}

bool EventLoop::TryPost(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (stopping_ || tasks_.size() >= max_posted_) return false;
  tasks_.push_back(std::move(task));
  Wake();
  return true;
}

void EventLoop::Signal(std::shared_ptr<Signalled> signalled) {
  if (signalled->queued_.exchange(true)) return;
  std::lock_guard lock(mutex_);
  signals_.push_back(std::move(signalled));
  Wake();
}

void EventLoop::Wake() {
  if (std::exchange(wake_pending_, true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t sent = write(wake_fd_, &one, sizeof(one));
}

Status EventLoop::Watch(int fd, uint32_t events, Watcher* watcher) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = watcher;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return OkStatus();
  return Error(ErrorCode::kIo, "epoll_ctl: {}", std::strerror(errno));
}

void EventLoop::Unwatch(int fd) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

void EventLoop::RequestTurnEnd(Watcher* watcher) {
  if (watcher->retired_ || std::exchange(watcher->turn_end_requested_, true)) return;
  turn_end_.push_back(watcher);
}

void EventLoop::Retire(std::unique_ptr<Watcher> watcher) {
  watcher->retired_ = true;
  std::erase(turn_end_, watcher.get());
  retired_.push_back(std::move(watcher));
}

Timer::~Timer() {
  if (queued_ns_ != kNever) loop_.timers_.erase({queued_ns_, this});
}

void Timer::Set(int64_t deadline_ns) {
  deadline_ns_ = deadline_ns;
  if (deadline_ns >= queued_ns_) return;  // fires at queued_ns_ and is put back then
  if (queued_ns_ != kNever) loop_.timers_.erase({queued_ns_, this});
  queued_ns_ = deadline_ns;
  loop_.timers_.insert({deadline_ns, this});
}

}  // namespace hayate::http
