#include "app/serve_options.h"

#include <CLI/CLI.hpp>

namespace hayate::app {
namespace {

void AddAnswerFlags(CLI::App& command, ServeOptions& o) {
  const char* group = "Answers";
  command
      .add_option("--sampling-defaults", o.sampling_defaults,
                  "of requests that say nothing: the model's generation_config.json, or openai's")
      ->check(CLI::IsMember({"model", "openai"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--default-chat-template-kwargs", o.default_chat_template_kwargs,
                  "JSON object of variables for the chat template; a request's own win")
      ->group(group);
  command
      .add_option("--stream-interval", o.stream_interval,
                  "tokens of a streamed event; the first token comes at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--incremental-streaming-output", o.incremental_streaming_output,
                "events of /generate hold what is new instead of all so far")
      ->group(group);
  command
      .add_flag("--stream-response-default-include-usage", o.stream_response_default_include_usage,
                "streams end with usage unless stream_options says no")
      ->group(group);
  command
      .add_option("--weight-version", o.weight_version,
                  "what answers call the weights, until they are updated")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--reasoning-parser", o.dialects.reasoning_parser,
                  "how the model marks its thinking; auto: by the chat template, none")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--tool-call-parser", o.dialects.tool_call_parser,
                  "how the model writes tool calls; auto: by the chat template, none")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--grammar-backend", o.dialects.grammar_backend,
                  "compiles schemas and expressions: xgrammar, none")
      ->check(CLI::IsMember({"xgrammar", "none"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--grammar-compile-timeout", o.dialects.grammar_compile_timeout_s,
                  "a schema or expression that compiles for more seconds is refused")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--enable-cache-report", o.enable_cache_report, "cached tokens in usage")
      ->group(group);
}

void AddAccessFlags(CLI::App& command, ServeOptions& o) {
  const char* group = "Access";
  command
      .add_option("--api-key", o.access.keys,
                  "clients must send it as a bearer token; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->envname("HAYATE_API_KEY")
      ->group(group);
  command
      .add_option("--api-key-file", o.access.key_file,
                  "JSON file of keys with limits; read again on SIGHUP")
      ->check(CLI::ExistingFile)
      ->group(group);
  command
      .add_option("--admin-api-key", o.access.admin_key,
                  "operators' key; without it their routes answer on the loopback interface alone")
      ->envname("HAYATE_ADMIN_API_KEY")
      ->group(group);
  command
      .add_option("--max-concurrent-per-key", o.access.max_concurrent_per_key,
                  "requests that one key may have under way; then 429")
      ->check(CLI::Range(0, 1'000'000))
      ->group(group);
  command
      .add_option("--cors-allow-origin", o.cors_allow_origin,
                  "web pages that may call from a browser: an origin, or *; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command
      .add_option("--access-log", o.access_log, "a JSON line a request goes there; -: the output")
      ->group(group);
  command
      .add_option("--trace-file", o.trace_file,
                  "spans of requests as OTLP JSON lines go there; -: the output")
      ->group(group);
  command
      .add_option("--max-prompt-tokens", o.max_prompt_tokens,
                  "longest prompt; longer ones are refused (0: the context)")
      ->check(CLI::Range(0, 1 << 30))
      ->group(group);
  command
      .add_option("--max-output-tokens", o.max_output_tokens,
                  "longest answer; it then ends by length (0: the context)")
      ->check(CLI::Range(0, 1 << 30))
      ->group(group);
  command
      .add_flag("--allow-auto-truncate", o.allow_auto_truncate,
                "cut prompts that are too long instead of refusing them")
      ->group(group);
  command.add_option("--max-payload-size", o.max_payload_size, "bytes of a body; then 413")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 30))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddServeFlags(CLI::App& command, ServeOptions& o) {
  const char* group = "Server";
  command.add_option("--host", o.host, "address to listen on")->capture_default_str()->group(group);
  command.add_option("--port,-p", o.port, "0 takes any free port")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group(group);
  command.add_option("--served-model-name", o.served_model_name, "name in requests and answers")
      ->group(group);
  command.add_option("--chat-template", o.chat_template, "file with a Jinja template")
      ->check(CLI::ExistingFile)
      ->group(group);
  command.add_option("--log-level", o.log_level, "debug, info, warning, error, off")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--enable-metrics", o.enable_metrics, "Prometheus metrics at /metrics")
      ->group(group);
  command
      .add_flag("--enable-cache-events", o.enable_cache_events,
                "tell at /v1/cache_events which prompts' beginnings are cached, for hayate gateway")
      ->group(group);
  command.add_option("--ssl-certfile", o.ssl_certfile, "PEM certificate chain: serve HTTPS")
      ->check(CLI::ExistingFile)
      ->group(group);
  command
      .add_option("--ssl-keyfile", o.ssl_keyfile, "PEM key of it; both are followed as they change")
      ->check(CLI::ExistingFile)
      ->group(group);
  command.add_option("--http-threads", o.http_threads, "threads that serve sockets")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-connections", o.max_connections, "beyond it: 503")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(group);
  command.add_option("--drain-seconds", o.drain_seconds, "on SIGTERM: time for running requests")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str()
      ->group(group);
  AddAnswerFlags(command, o);
  AddAccessFlags(command, o);
}

}  // namespace hayate::app
