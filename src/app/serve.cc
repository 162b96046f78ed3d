#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "api/error_table.h"
#include "api/exchange_table.h"
#include "api/service.h"
#include "app/answer_dialects.h"
#include "app/chat_template_loading.h"
#include "app/commands.h"
#include "app/config_file.h"
#include "app/engine_stack.h"
#include "app/load_progress.h"
#include "app/signals.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "http/server.h"

namespace hayate::app {
namespace {

constexpr std::chrono::seconds kHttpGrace{5};
// How soon a device failure ends the process; a signal ends the wait at once.
constexpr std::chrono::milliseconds kSignalPoll{500};

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 30000;  // SGLang's
  std::string served_model_name;
  std::string chat_template;
  DialectOptions dialects;
  std::string api_key;
  std::string log_level = "info";
  bool enable_metrics = false;
  bool enable_cache_report = false;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  int http_threads = 1;
  int max_connections = 4096;
  int drain_seconds = 30;
};

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
  command.add_option("--api-key", o.api_key, "clients must send it as a bearer token")
      ->envname("HAYATE_API_KEY")
      ->group(group);
  command.add_option("--log-level", o.log_level, "debug, info, warning, error, off")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--enable-metrics", o.enable_metrics, "Prometheus metrics at /metrics")
      ->group(group);
  command.add_flag("--enable-cache-report", o.enable_cache_report, "cached tokens in usage")
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
}

api::SamplingDefaults ReadSamplingDefaults(const weights::Metadata& generation_config) {
  api::SamplingDefaults defaults;
  // A value that no request could ask for is not taken from a file either.
  const auto read = [&](const char* key, double low, double high, std::optional<double>& value) {
    if (!generation_config.Has(key)) return;
    const auto number = generation_config.GetFloat(key);
    if (number.ok() && *number >= low && *number <= high) {
      value = *number;
    } else {
      LOG_WARN("generation_config.json: {} is ignored, it is not between {} and {}", key, low,
               high);
    }
  };
  read("temperature", 0.0, 100.0, defaults.temperature);
  read("top_p", 0.0, 1.0, defaults.top_p);
  read("min_p", 0.0, 1.0, defaults.min_p);
  read("repetition_penalty", 0.01, 2.0, defaults.repetition_penalty);
  std::optional<double> top_k;
  read("top_k", -1.0, 1e9, top_k);
  if (top_k) defaults.top_k = static_cast<int64_t>(*top_k);
  return defaults;
}

std::string ServerInfo(const ServeOptions& options, const EngineStack& stack) {
  std::string fields;
  JsonWriter json(fields);
  json.BeginObject();
  json.Field("version", HAYATE_VERSION);
  json.Field("model_path", stack.checkpoint().path().string());
  json.Field("served_model_name", options.served_model_name);
  json.Field("device", stack.executor().device_name());
  json.Field("tp_size", stack.executor().num_ranks());
  json.Field("dp_size", 1);
  json.Field("context_length", stack.max_context());
  json.Field("max_running_requests", options.model.max_running_requests);
  json.Field("max_queued_requests", options.model.max_queued_requests);
  json.Field("chunked_prefill_size", options.model.chunked_prefill_size);
  json.Field("page_size", options.model.page_size);
  json.Field("schedule_policy", options.model.schedule_policy);
  json.Field("kv_cache_dtype", options.model.kv_cache_dtype);
  json.Field("disable_radix_cache", options.model.disable_radix_cache);
  json.Field("reasoning_parser", options.dialects.reasoning_parser);
  json.Field("tool_call_parser", options.dialects.tool_call_parser);
  json.Field("grammar_backend", options.dialects.grammar_backend);
  json.EndObject();
  return fields.substr(1, fields.size() - 2);
}

Result<api::ServedModel> MakeServedModel(const ServeOptions& options, const EngineStack& stack) {
  api::ServedModel model;
  model.name = options.served_model_name;
  model.path = stack.checkpoint().path().string();
  model.architecture = stack.facts().architecture;
  model.tokenizer = stack.tokenizer();
  ASSIGN_OR_RETURN(model.chat_template,
                   LoadChatTemplate(stack.checkpoint(), *stack.tokenizer(), options.chat_template));
  model.eos_ids.assign(stack.facts().eos_ids.begin(), stack.facts().eos_ids.end());
  model.max_context = stack.max_context();
  model.vocab_size = stack.facts().vocab_size;
  model.defaults = ReadSamplingDefaults(stack.checkpoint().generation_config());
  model.created = UnixSeconds();
  model.server_info_json = ServerInfo(options, stack);
  model.report_cached_tokens = options.enable_cache_report;
  RETURN_IF_ERROR(SetUpDialects(options.dialects, stack.clock(), model));
  return model;
}

void LogReady(const EngineStack& stack, const http::Server& server, const ServeOptions& options,
              int64_t start_ns) {
  const exec::LocalExecutor& executor = stack.executor();
  LOG_INFO("{}: {:.1f} MiB of weights on {} ranks ({}), KV pool of {} tokens, context of {}",
           options.served_model_name, static_cast<double>(executor.weight_bytes()) / (1 << 20),
           executor.num_ranks(), executor.device_name(), executor.total_tokens(),
           stack.max_context());
  LOG_INFO("ready on {}://{}:{} after {:.2f} s", options.ssl_certfile.empty() ? "http" : "https",
           options.host, server.port(),
           static_cast<double>(SteadyClock().NowNs() - start_ns) * 1e-9);
}

Status Serve(ServeOptions options) {
  const int64_t start_ns = SteadyClock().NowNs();
  RETURN_IF_ERROR(SetLogLevel(options.log_level));
  ASSIGN_OR_RETURN(options.model, WithDeviceDefaults(std::move(options.model)));
  // Blocked before any thread starts, so that a signal during loading stops the process cleanly
  // too.
  StopSignals signals;

  http::ServerOptions http_options;
  http_options.listen = {options.host, static_cast<uint16_t>(options.port)};
  http_options.num_threads = options.http_threads;
  http_options.max_connections = options.max_connections;
  http_options.render_error = [](int status, std::string_view reason) {
    return http::ServerOptions::ErrorBody{"application/json", api::ErrorBody(status, reason)};
  };
  if (options.ssl_certfile.empty() != options.ssl_keyfile.empty()) {
    return Status(ErrorCode::kInvalidArgument, "--ssl-certfile and --ssl-keyfile go together");
  }
  if (!options.ssl_certfile.empty()) {
    ASSIGN_OR_RETURN(http_options.tls, http::TlsIdentity::Load({.cert_file = options.ssl_certfile,
                                                                .key_file = options.ssl_keyfile}));
  }
  // Bound first: a taken port is told before a long load.
  ASSIGN_OR_RETURN(auto server, http::Server::Create(std::move(http_options)));

  std::vector<std::unique_ptr<api::ExchangeTable>> tables;
  EngineStack::Options stack_options;
  std::random_device entropy;
  for (const auto& thread : server->threads()) {
    const uint64_t seed = uint64_t{entropy()} << 32 | entropy();
    tables.push_back(std::make_unique<api::ExchangeTable>(*thread, seed));
    stack_options.wakes.push_back([table = tables.back().get()] { table->Signal(); });
  }
  if (options.served_model_name.empty()) {
    options.served_model_name =
        options.model.model_path.empty()
            ? "SmolLM2-135M-Instruct"
            : std::filesystem::path(options.model.model_path).stem().string();
  }
  stack_options.model = options.model;
  stack_options.metrics_model_name = options.served_model_name;
  LoadProgress progress;
  stack_options.progress = [&](int64_t done, int64_t total) {
    // Nothing is served yet and nothing needs saving: a signal while loading ends the process here.
    if (signals.pending()) std::_Exit(0);
    progress.Update(done, total);
  };
  auto created = EngineStack::Create(std::move(stack_options));
  progress.Finish();
  if (!created.ok()) return created.status();
  const std::unique_ptr<EngineStack> stack = std::move(created).value();

  ASSIGN_OR_RETURN(api::ServedModel model, MakeServedModel(options, *stack));
  std::vector<api::ExchangeTable*> table_pointers;
  for (size_t i = 0; i < tables.size(); ++i) {
    tables[i]->SetOutbox(stack->outbox(i));
    table_pointers.push_back(tables[i].get());
  }
  api::Service service({.api_key = options.api_key,
                        .enable_metrics = options.enable_metrics,
                        .max_queued_requests = options.model.max_queued_requests},
                       std::move(model), stack->client(), stack->registry(), table_pointers);
  stack->Start();
  RETURN_IF_ERROR(server->Start([&service](http::Request& request, http::ResponseWriter writer) {
    service.Handle(request, std::move(writer));
  }));
  LogReady(*stack, *server, options, start_ns);

  std::optional<int> signal;
  while (!signal && !stack->client().failed()) signal = signals.WaitFor(kSignalPoll);
  if (signal) {
    LOG_INFO("{}: finishing what runs, at most {} s", *signal == SIGINT ? "SIGINT" : "SIGTERM",
             options.drain_seconds);
  }
  signals.RestoreDefaults();
  service.BeginDraining();
  // The engine refuses new work and finishes the old one; its last events still go out by HTTP.
  stack->Stop(int64_t{options.drain_seconds} * 1'000'000'000);
  const Status drained = server->Shutdown(kHttpGrace);
  if (!drained.ok()) LOG_WARN("{}", drained.message());
  service.Stop();
  tables.clear();
  if (!signal) return Status(ErrorCode::kUnavailable, "the device has failed (see the log)");
  LOG_INFO("stopped");
  return OkStatus();
}

}  // namespace

void AddServe(CLI::App& root, Command& chosen) {
  CLI::App* command = root.add_subcommand("serve", "Serve a model over HTTP, as OpenAI's API");
  auto options = std::make_shared<ServeOptions>();
  AddModelFlags(*command, options->model);
  AddServeFlags(*command, *options);
  AddSchedulingFlags(*command, options->model);
  auto config_path = std::make_shared<std::string>();
  command->add_option("--config", *config_path, "TOML file with these options; flags win over it")
      ->configurable(false);
  command->callback([&chosen, command, options, config_path] {
    if (!config_path->empty()) ApplyConfigFile(*command, *config_path);
    chosen = [options] { return Serve(*options); };
  });
}

}  // namespace hayate::app
