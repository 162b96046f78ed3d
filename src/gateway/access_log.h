#pragma once
// One JSON line for each finished request. Lines gather in memory and are written by Flush(), so
// that serving threads never wait for a disk; beyond kMaxPendingBytes lines are dropped and
// counted.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::gateway {

struct AccessRecord {
  std::string_view request_id, method, path, model, worker, key_id;
  int status = 0;
  int retries = 0;
  double first_byte_ms = 0.0;
  double total_ms = 0.0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  std::string_view end;  // "ok", "cancelled", "broken", …
};

class AccessLog {
 public:
  // "-" is the standard output. kIo names the file.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  ~AccessLog();

  void Add(const AccessRecord& record);  // any thread
  void Flush();                          // one thread

 private:
  explicit AccessLog(std::FILE* file) : file_(file) {}
  static constexpr size_t kMaxPendingBytes = 4 << 20;

  std::FILE* file_;
  std::mutex mutex_;
  std::string pending_;   // guarded by mutex_
  uint64_t dropped_ = 0;  // guarded by mutex_
};

}  // namespace hayate::gateway
