#include "app/signals.h"

#include <ctime>

#include "base/check.h"

namespace hayate::app {

StopSignals::StopSignals(std::initializer_list<int> others) {
  std::signal(SIGPIPE, SIG_IGN);
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  for (const int signal : others) sigaddset(&set_, signal);
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set_, nullptr), 0);
}

std::optional<int> StopSignals::WaitFor(std::chrono::milliseconds timeout) {
  const timespec limit{.tv_sec = timeout.count() / 1000,
                       .tv_nsec = timeout.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set_, nullptr, &limit);
  if (signal < 0) return std::nullopt;
  return signal;
}

void StopSignals::RestoreDefaults() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &set_, nullptr), 0);
}

bool StopSignals::pending() const {
  sigset_t waiting;
  sigemptyset(&waiting);
  sigpending(&waiting);
  return sigismember(&waiting, SIGINT) == 1 || sigismember(&waiting, SIGTERM) == 1;
}

}  // namespace hayate::app
