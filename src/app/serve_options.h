#pragma once
// The command line of `hayate serve`, by SGLang's names.

#include <cstdint>
#include <string>
#include <vector>

#include "api/access_control.h"
#include "app/answer_dialects.h"
#include "app/model_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hayate::app {

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 30000;  // SGLang's
  std::string served_model_name;
  std::string chat_template;
  std::string sampling_defaults = "model";
  std::string default_chat_template_kwargs;  // a JSON object, or empty
  int32_t stream_interval = 1;
  bool incremental_streaming_output = false;
  bool stream_response_default_include_usage = false;
  std::string weight_version = "default";
  DialectOptions dialects;
  api::AccessOptions access;
  std::vector<std::string> cors_allow_origin;
  std::string access_log;
  std::string trace_file;
  int64_t max_payload_size = 64 << 20;
  int32_t max_prompt_tokens = 0;
  int32_t max_output_tokens = 0;
  bool allow_auto_truncate = false;
  std::string log_level = "info";
  bool enable_metrics = false;
  bool enable_cache_events = false;
  bool enable_cache_report = false;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  int http_threads = 1;
  int max_connections = 4096;
  int drain_seconds = 30;
};

void AddServeFlags(CLI::App& command, ServeOptions& options);

}  // namespace hayate::app
