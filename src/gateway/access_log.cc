#include "gateway/access_log.h"

#include <ctime>

#include "base/json_writer.h"

namespace hayate::gateway {

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  auto lines = obs::LineFile::Open(path);
  if (!lines.ok()) return lines.status().Under("access log");
  return std::unique_ptr<AccessLog>(new AccessLog(*std::move(lines)));
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
  lines_->Add(line);
}

}  // namespace hayate::gateway
