#include "gateway/access_log.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"

namespace hayate::gateway {

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "ae");
  if (file == nullptr) {
    return Error(ErrorCode::kIo, "access log {}: {}", path, std::strerror(errno));
  }
  return std::unique_ptr<AccessLog>(new AccessLog(file));
}

AccessLog::~AccessLog() {
  Flush();
  if (file_ != stdout) std::fclose(file_);
}

void AccessLog::Add(const AccessRecord& record) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::string line;
  JsonWriter json(line);
  json.BeginObject();
  json.Field("time", static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec));
  json.Field("request_id", record.request_id);
  json.Field("method", record.method);
  json.Field("path", record.path);
  json.Field("model", record.model);
  json.Field("worker", record.worker);
  json.Field("key", record.key_id);
  json.Field("status", record.status);
  json.Field("end", record.end);
  json.Field("retries", record.retries);
  json.Field("first_byte_ms", record.first_byte_ms);
  json.Field("total_ms", record.total_ms);
  json.Field("bytes_in", record.bytes_in);
  json.Field("bytes_out", record.bytes_out);
  json.EndObject();
  line.push_back('\n');
  std::lock_guard lock(mutex_);
  if (pending_.size() + line.size() > kMaxPendingBytes) {
    ++dropped_;
  } else {
    pending_ += line;
  }
}

void AccessLog::Flush() {
  std::string lines;
  uint64_t dropped = 0;
  {
    std::lock_guard lock(mutex_);
    lines.swap(pending_);
    std::swap(dropped, dropped_);
  }
  if (dropped > 0) LOG_WARN("access log: {} lines dropped", dropped);
  if (lines.empty()) return;
  std::fwrite(lines.data(), 1, lines.size(), file_);
  std::fflush(file_);
}

}  // namespace hayate::gateway
