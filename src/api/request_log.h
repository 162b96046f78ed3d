#pragma once
// What is said of a request when it is over: a line of the access log, a span of the trace, counts
// of the metrics. One line of JSON each; never a prompt, an answer or a key.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/access_control.h"
#include "base/rng.h"
#include "http/server.h"
#include "obs/line_file.h"
#include "obs/metrics.h"

namespace hayate::api {

// W3C trace context of a request: who asked, and the span that answers it.
struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16; empty: this span is a root
  std::string span_id;    // 16, this server's
  bool sampled = true;
};

// The context that a traceparent field tells, or a new one where there is none or a malformed one.
TraceContext ReadTraceContext(std::string_view traceparent, Rng& rng);

// The facts of one request, gathered along its way. Owner: its http thread.
struct RequestRecord {
  std::string request_id;  // the client's, else made up
  std::string method, path, peer, key_id;
  TraceContext trace;
  uint64_t bytes_in = 0;
  int64_t begin_unix_ns = 0;
  int64_t begin_ns = 0;  // steady clock
  KeyUse use;            // until the answer is complete

  // Of a request that generates; times are steady, 0 where it did not come to that.
  bool generates = false;
  int64_t prepared_ns = 0;
  int64_t first_token_ns = 0;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

class RequestLog {
 public:
  struct Options {
    obs::LineFile* access = nullptr;  // null: none
    obs::LineFile* spans = nullptr;   // OTLP as JSON lines; null: none
    std::string service_name = "hayate";
  };
  // Files and registry outlive the log.
  RequestLog(Options options, obs::Registry& registry);

  std::shared_ptr<RequestRecord> Begin(const http::Request& request, Rng& rng);
  // Any http thread.
  void End(const RequestRecord& record, const http::Answered& answered);

 private:
  void AddAccessLine(const RequestRecord& record, const http::Answered& answered, int64_t now_ns);
  void AddSpan(const RequestRecord& record, const http::Answered& answered, int64_t now_ns);
  void Count(const http::Answered& answered);

  const Options options_;
  obs::Gauge& active_;
  obs::Counter& requests_;
  struct StatusCount {
    int status;  // 0: every other
    obs::Counter* count;
  };
  std::vector<StatusCount> responses_;
};

}  // namespace hayate::api
