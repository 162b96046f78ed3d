#include "api/step_profile.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "obs/step_trace.h"

namespace hayate::api {

Status StepProfile::Start(std::string folder, int64_t first, std::optional<int64_t> num_steps) {
  std::error_code error;
  if (folder.empty()) folder = std::filesystem::temp_directory_path(error).string();
  if (!std::filesystem::is_directory(folder, error)) {
    return InvalidField("output_dir", "'{}' is no folder of the server", folder);
  }
  std::lock_guard lock(mutex_);
  if (run_) {
    return Status(ErrorCode::kInvalidArgument, "a profile is under way; end it with /stop_profile");
  }
  run_ = Run{std::move(folder), first, num_steps};
  return OkStatus();
}

Result<std::string> StepProfile::Stop(const obs::StepLog& log) {
  std::optional<Run> run;
  {
    std::lock_guard lock(mutex_);
    run.swap(run_);
  }
  if (!run) return Status(ErrorCode::kInvalidArgument, "no profile is under way");
  const auto since = static_cast<size_t>(std::max<int64_t>(0, log.num_steps() - run->first));
  std::vector<obs::StepRecord> steps = log.Snapshot(since);
  if (run->num_steps) {
    const int64_t end = run->first + *run->num_steps;
    std::erase_if(steps, [&](const obs::StepRecord& step) { return step.step >= end; });
  }
  const std::filesystem::path path =
      std::filesystem::path(run->folder) /
      fmt::format("hayate-{}-steps-{}.trace.json", UnixSeconds(), run->first);
  std::ofstream file(path, std::ios::binary);
  file << obs::StepTraceJson(steps);
  file.close();
  if (!file) return Error(ErrorCode::kIo, "cannot write {}", path.string());
  return path.string();
}

}  // namespace hayate::api
