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
#include "app/chat_template_loading.h"
#include "app/commands.h"
#include "app/config_file.h"
#include "app/engine_stack.h"
#include "app/expert_record.h"
#include "app/load_progress.h"
#include "app/serve_options.h"
#include "app/signals.h"
#include "app/weight_reading.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "console/console.h"
#include "http/server.h"
#include "text/template/json.h"

namespace hayate::app {
namespace {

constexpr std::chrono::seconds kHttpGrace{5};
// How soon a device failure ends the process; a signal ends the wait at once.
constexpr std::chrono::milliseconds kSignalPoll{500};

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

Result<text::jinja::Value> ReadTemplateKwargs(const std::string& text) {
  if (text.empty()) return text::jinja::Value::None();
  auto value = text::jinja::ParseJson(text);
  if (value.ok() && value->is_dict()) return value;
  return Error(ErrorCode::kInvalidArgument,
               "--default-chat-template-kwargs must be a JSON object, not '{}'", text);
}

std::string ServerInfo(const ServeOptions& options, const EngineStack& stack) {
  std::string fields;
  JsonWriter json(fields);
  json.BeginObject();
  json.Field("version", HAYATE_VERSION);
  json.Field("model_path", stack.checkpoint()->path().string());
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
  model.path = stack.checkpoint()->path().string();
  model.weights = std::make_shared<api::WeightsInUse>(model.path, options.weight_version);
  model.architecture = stack.facts().architecture;
  model.tokenizer = stack.tokenizer();
  ASSIGN_OR_RETURN(model.chat_template, LoadChatTemplate(*stack.checkpoint(), *stack.tokenizer(),
                                                         options.chat_template));
  model.eos_ids.assign(stack.facts().eos_ids.begin(), stack.facts().eos_ids.end());
  model.max_context = stack.max_context();
  model.vocab_size = stack.facts().vocab_size;
  if (stack.executor().gives_hidden()) model.embedding_size = stack.facts().hidden_size;
  if (options.sampling_defaults == "model") {
    model.defaults = ReadSamplingDefaults(stack.checkpoint()->generation_config());
  }
  model.stream = {.interval = options.stream_interval,
                  .incremental = options.incremental_streaming_output,
                  .include_usage = options.stream_response_default_include_usage};
  ASSIGN_OR_RETURN(model.template_kwargs, ReadTemplateKwargs(options.default_chat_template_kwargs));
  model.max_prompt = options.max_prompt_tokens;
  model.max_output = options.max_output_tokens;
  model.truncates_prompts = options.allow_auto_truncate;
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

// Written by the main thread, about twice a second.
struct LogFiles {
  std::unique_ptr<obs::LineFile> access;  // null: not asked for
  std::unique_ptr<obs::LineFile> spans;

  static Result<LogFiles> Open(const ServeOptions& options) {
    LogFiles files;
    if (!options.access_log.empty()) {
      ASSIGN_OR_RETURN(files.access, obs::LineFile::Open(options.access_log));
    }
    if (!options.trace_file.empty()) {
      ASSIGN_OR_RETURN(files.spans, obs::LineFile::Open(options.trace_file));
    }
    return files;
  }
  void Flush() const {
    if (access != nullptr) access->Flush();
    if (spans != nullptr) spans->Flush();
  }
};

// SIGHUP: what may change on disk under a running server.
void Reload(api::Service& service, http::TlsIdentity* tls) {
  Status status = service.ReloadKeys();
  if (status.ok() && tls != nullptr) status = tls->Reload();
  if (status.ok()) {
    LOG_INFO("SIGHUP: keys and certificates are read again");
  } else {
    LOG_WARN("SIGHUP: {}; the old ones stay", status.message());
  }
}

Status Serve(ServeOptions options) {
  const int64_t start_ns = SteadyClock().NowNs();
  RETURN_IF_ERROR(SetLogLevel(options.log_level));
  ASSIGN_OR_RETURN(options.model, WithDeviceDefaults(std::move(options.model)));
  // Blocked before any thread starts, so that a signal during loading stops the process cleanly
  // too.
  StopSignals signals({SIGHUP});

  http::ServerOptions http_options;
  http_options.listen = {options.host, static_cast<uint16_t>(options.port)};
  http_options.num_threads = options.http_threads;
  http_options.max_connections = options.max_connections;
  http_options.max_body_bytes = static_cast<size_t>(options.max_payload_size);
  http_options.render_error = [](int status, std::string_view reason) {
    return http::ServerOptions::ErrorBody{"application/json", api::ErrorBody(status, reason)};
  };
  if (options.ssl_certfile.empty() != options.ssl_keyfile.empty()) {
    return Status(ErrorCode::kInvalidArgument, "--ssl-certfile and --ssl-keyfile go together");
  }
  std::shared_ptr<http::TlsIdentity> tls;
  if (!options.ssl_certfile.empty()) {
    ASSIGN_OR_RETURN(tls, http::TlsIdentity::Load({.cert_file = options.ssl_certfile,
                                                   .key_file = options.ssl_keyfile}));
    http_options.tls = tls;
  }
  ASSIGN_OR_RETURN(auto access, api::AccessControl::Create(options.access));
  ASSIGN_OR_RETURN(const LogFiles logs, LogFiles::Open(options));
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
  stack_options.tells_cache = options.enable_cache_events;
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
  ExpertRecord experts(stack->executor(), stack->registry(), options.served_model_name);
  api::Service service({.cross_origin = {options.cors_allow_origin},
                        .enable_metrics = options.enable_metrics,
                        .max_queued_requests = options.model.max_queued_requests},
                       {.model = std::move(model),
                        .client = &stack->client(),
                        .registry = &stack->registry(),
                        .step_log = &stack->step_log(),
                        .clock = &stack->clock(),
                        .tables = table_pointers,
                        .access = std::move(access),
                        .log = {.access = logs.access.get(),
                                .spans = logs.spans.get(),
                                .service_name = options.served_model_name},
                        .read_weights =
                            [&stack](const std::string& name, int64_t max_rows) {
                              return WeightsJson(*stack->checkpoint(), name, max_rows);
                            },
                        .update_weights =
                            [&stack](const api::WeightUpdateRequest& update) {
                              return stack->UpdateWeights(update.model_path,
                                                          {.abort_all = update.abort_all,
                                                           .flush_cache = update.flush_cache});
                            },
                        .expert_record = {.start = [&experts] { return experts.Start(); },
                                          .stop = [&experts] { return experts.Stop(); },
                                          .dump = [&experts] { return experts.Dump(); }}});
  stack->Start();
  RETURN_IF_ERROR(server->Start([&service](http::Request& request, http::ResponseWriter writer) {
    if (console::Answer(request, writer)) return;
    service.Handle(request, std::move(writer));
  }));
  LogReady(*stack, *server, options, start_ns);

  std::optional<int> signal;
  while ((!signal || *signal == SIGHUP) && !stack->client().failed()) {
    signal = signals.WaitFor(kSignalPoll);
    if (signal == SIGHUP) Reload(service, tls.get());
    logs.Flush();
    experts.UpdateMetrics();
  }
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
