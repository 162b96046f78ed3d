#pragma once
// One JSON line for each finished request.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "obs/line_file.h"

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

  void Add(const AccessRecord& record);  // any thread
  void Flush() { lines_->Flush(); }      // one thread

 private:
  explicit AccessLog(std::unique_ptr<obs::LineFile> lines) : lines_(std::move(lines)) {}
  std::unique_ptr<obs::LineFile> lines_;
};

}  // namespace hayate::gateway
