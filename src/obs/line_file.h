#pragma once
// Lines for a file, written by one thread while many add: access logs, trace spans. Lines gather in
// memory until Flush(), so that serving threads never wait for a disk.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::obs {

class LineFile {
 public:
  // Appends to the file; "-" is the standard output. kIo names the file.
  static Result<std::unique_ptr<LineFile>> Open(const std::string& path);
  ~LineFile();  // flushes

  // Any thread. `line` has no line end. Beyond kMaxPendingBytes lines are dropped and counted.
  void Add(std::string_view line);
  // One thread.
  void Flush();

  static constexpr size_t kMaxPendingBytes = 4 << 20;

 private:
  LineFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  std::FILE* const file_;
  std::mutex mutex_;
  std::string pending_;   // guarded by mutex_
  uint64_t dropped_ = 0;  // guarded by mutex_
};

}  // namespace hayate::obs
