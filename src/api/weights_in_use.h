#pragma once
// Which weights answer at the moment, for those who ask. Any thread.

#include <mutex>
#include <string>
#include <utility>

namespace hayate::api {

class WeightsInUse {
 public:
  // `version` is the operator's own name for them.
  WeightsInUse(std::string path, std::string version)
      : path_(std::move(path)), version_(std::move(version)) {}

  std::string path() const {
    const std::lock_guard lock(mutex_);
    return path_;
  }
  std::string version() const {
    const std::lock_guard lock(mutex_);
    return version_;
  }
  void SetPath(std::string path) {
    const std::lock_guard lock(mutex_);
    path_ = std::move(path);
  }
  void SetVersion(std::string version) {
    const std::lock_guard lock(mutex_);
    version_ = std::move(version);
  }

 private:
  mutable std::mutex mutex_;
  std::string path_;
  std::string version_;
};

}  // namespace hayate::api
