#pragma once
// /start_profile and /stop_profile: the steps between them, as a trace in a file. Any thread.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "obs/step_log.h"

namespace hayate::api {

class StepProfile {
 public:
  // From step `first` on. `folder` empty: the system's for temporary files. `num_steps`: so many of
  // them at most.
  Status Start(std::string folder, int64_t first, std::optional<int64_t> num_steps);
  // Writes what the log still holds of them. The file's path.
  Result<std::string> Stop(const obs::StepLog& log);

 private:
  struct Run {
    std::string folder;
    int64_t first = 0;
    std::optional<int64_t> num_steps;
  };
  std::mutex mutex_;
  std::optional<Run> run_;  // guarded by mutex_
};

}  // namespace hayate::api
