#pragma once
// SIGINT and SIGTERM as values instead of handlers.

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>

namespace hayate::app {

// Blocks both signals for the calling thread and every thread it starts afterwards; make it before
// them. SIGPIPE is ignored: a client that went away is an error code of write().
class StopSignals {
 public:
  StopSignals() : StopSignals({}) {}
  // Others besides them, for WaitFor alone.
  explicit StopSignals(std::initializer_list<int> others);
  // The signal that arrived within `timeout`, if any.
  std::optional<int> WaitFor(std::chrono::milliseconds timeout);
  // From here on a signal ends the process at once: for whoever asks again while it shuts down.
  void RestoreDefaults();
  // Whether one has arrived that nobody has taken yet; does not take it.
  bool pending() const;

 private:
  sigset_t set_{};
};

}  // namespace hayate::app
