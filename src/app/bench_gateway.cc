// hayate bench gateway: a mock worker, and the load that measures what a gateway before it adds.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>

#include "app/bench_commands.h"
#include "app/server_address.h"
#include "app/signals.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "bench/mock_worker.h"
#include "bench/proxy_load.h"

namespace hayate::app {
namespace {

struct BenchGatewayOptions {
  // Worker
  bool mock_worker = false;
  std::string host = "127.0.0.1";
  int port = 0;
  bench::MockWorkerOptions worker;
  double first_token_ms = 0.0;
  double inter_token_ms = 0.0;
  // Load
  std::string url;
  std::string mode = "requests";
  std::string model = "mock";
  int concurrency = 32;
  double rate = 0.0;
  double duration_s = 5.0;
  double warmup_s = 0.5;
  int prompt_bytes = 64;
  int max_tokens = 16;
  int distinct_prompts = 1;
  std::string prompt_file;
};

Status RunMockWorker(BenchGatewayOptions options) {
  StopSignals signals;
  options.worker.listen = {options.host, static_cast<uint16_t>(options.port)};
  options.worker.first_token =
      std::chrono::microseconds(static_cast<int64_t>(options.first_token_ms * 1e3));
  options.worker.inter_token =
      std::chrono::microseconds(static_cast<int64_t>(options.inter_token_ms * 1e3));
  ASSIGN_OR_RETURN(const auto worker, bench::MockWorker::Start(options.worker));
  fmt::print("mock worker on http://{}:{}\n", options.host, worker->port());
  std::fflush(stdout);
  while (!signals.WaitFor(std::chrono::hours(1))) {
  }
  return OkStatus();
}

std::string MakeBody(const BenchGatewayOptions& options, int index) {
  std::string body;
  JsonWriter json(body);
  // Text that differs from its first byte on.
  std::string prompt = fmt::format("{:016x}", static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15u);
  prompt.resize(static_cast<size_t>(options.prompt_bytes), 'x');
  json.BeginObject();
  json.Field("model", options.model);
  json.Key("messages");
  json.BeginArray();
  json.BeginObject();
  json.Field("role", "user");
  json.Field("content", prompt);
  json.EndObject();
  json.EndArray();
  json.Field("max_tokens", options.max_tokens);
  json.Field("stream", options.mode == "streams");
  json.EndObject();
  return body;
}

Result<std::vector<std::string>> ReadPrompts(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> bodies;
  for (std::string line; std::getline(file, line);) bodies.push_back(line);
  if (bodies.empty()) return Error(ErrorCode::kIo, "{} holds no request bodies", path);
  return bodies;
}

std::string ResultJson(const BenchGatewayOptions& options, const bench::ProxyLoadResult& result) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("url", options.url);
  json.Field("mode", options.mode);
  json.Field("concurrency", options.concurrency);
  json.Field("rate", options.rate);
  json.Field("requests", result.requests);
  json.Field("failed", result.failed);
  json.Field("seconds", result.seconds);
  json.Field("requests_per_second", static_cast<double>(result.requests) / result.seconds);
  json.Field("events_per_second", static_cast<double>(result.events) / result.seconds);
  json.Field("bytes", result.bytes);
  for (const auto& [name, q] : {std::pair("p50", 0.5), {"p90", 0.9}, {"p99", 0.99}}) {
    json.Field(fmt::format("latency_us_{}", name), bench::Quantile(result.latency_us, q));
    json.Field(fmt::format("first_byte_us_{}", name), bench::Quantile(result.first_byte_us, q));
  }
  if (!result.first_error.empty()) json.Field("first_error", result.first_error);
  json.EndObject();
  return out;
}

Status RunLoad(const BenchGatewayOptions& options) {
  ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(options.url));
  bench::ProxyLoadOptions load;
  load.endpoint = address.endpoint;
  load.path = address.base_path + load.path;
  load.concurrency = options.concurrency;
  load.rate = options.rate;
  load.warmup = std::chrono::milliseconds(static_cast<int64_t>(options.warmup_s * 1e3));
  load.duration = std::chrono::milliseconds(static_cast<int64_t>(options.duration_s * 1e3));
  if (!options.prompt_file.empty()) {
    ASSIGN_OR_RETURN(load.prompts, ReadPrompts(options.prompt_file));
  } else if (options.distinct_prompts > 1) {
    for (int i = 0; i < options.distinct_prompts; ++i) load.prompts.push_back(MakeBody(options, i));
  } else {
    load.body = MakeBody(options, 0);
  }
  ASSIGN_OR_RETURN(const bench::ProxyLoadResult result, bench::RunProxyLoad(load));
  fmt::print("{}\n", ResultJson(options, result));
  if (result.requests > 0) return OkStatus();
  return Error(ErrorCode::kUnavailable, "no request was answered ({})", result.first_error);
}

void AddWorkerFlags(CLI::App& command, BenchGatewayOptions& o) {
  const char* group = "Mock worker";
  command.add_flag("--mock-worker", o.mock_worker, "be a worker, until a signal")->group(group);
  command.add_option("--host", o.host)->capture_default_str()->group(group);
  command.add_option("--port", o.port, "0 takes any free port")
      ->check(CLI::Range(0, 65535))
      ->group(group);
  command.add_option("--worker-threads", o.worker.num_threads)
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(group);
  command.add_option("--disaggregation-mode", o.worker.disaggregation_mode)
      ->check(CLI::IsMember({"null", "prefill", "decode"}))
      ->group(group);
  command.add_option("--first-token-ms", o.first_token_ms, "until an answer begins")
      ->check(NumberBetween(0.0, 1e6))
      ->group(group);
  command.add_option("--inter-token-ms", o.inter_token_ms, "between two events; 0: at once")
      ->check(NumberBetween(0.0, 1e6))
      ->group(group);
  const auto add_share = [&](const char* flag, double& value, const char* help) {
    command.add_option(flag, value, help)->check(NumberBetween(0.0, 1.0))->group(group);
  };
  add_share("--error-rate", o.worker.error_rate, "share of requests answered 500");
  add_share("--close-rate", o.worker.close_rate, "share closed before an answer");
  add_share("--cut-rate", o.worker.cut_rate, "share cut in the middle of the answer");
  add_share("--hang-rate", o.worker.hang_rate, "share never answered");
}

void AddLoadFlags(CLI::App& command, BenchGatewayOptions& o) {
  const char* group = "Load";
  command.add_option("--url", o.url, "http://host:port of a gateway or a worker")->group(group);
  command.add_option("--mode", o.mode, "small answers, or streams of --max-tokens events")
      ->check(CLI::IsMember({"requests", "streams"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--model", o.model)->capture_default_str()->group(group);
  command.add_option("--concurrency", o.concurrency, "requests under way at most")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str()
      ->group(group);
  command.add_option("--rate", o.rate, "requests a second, evenly spaced; 0: as fast as they go")
      ->check(NumberBetween(0.0, 1e7))
      ->group(group);
  command.add_option("--duration", o.duration_s, "seconds that are measured")
      ->check(NumberBetween(0.1, 3600.0))
      ->capture_default_str()
      ->group(group);
  command.add_option("--warmup", o.warmup_s, "seconds before")
      ->check(NumberBetween(0.0, 3600.0))
      ->capture_default_str()
      ->group(group);
  command.add_option("--prompt-bytes", o.prompt_bytes)
      ->check(CLI::Range(16, 1 << 30))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-tokens", o.max_tokens, "events of a stream")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(group);
  command.add_option("--distinct-prompts", o.distinct_prompts, "that take turns")
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
  command.add_option("--body-file", o.prompt_file, "request bodies, one a line, sent in turn")
      ->check(CLI::ExistingFile)
      ->group(group);
}

}  // namespace

void AddBenchGateway(CLI::App& bench, Command& chosen) {
  CLI::App* command =
      bench.add_subcommand("gateway", "Be a mock worker, or load a gateway before one");
  auto options = std::make_shared<BenchGatewayOptions>();
  AddWorkerFlags(*command, *options);
  AddLoadFlags(*command, *options);
  command->callback([&chosen, options] {
    if (options->mock_worker == !options->url.empty()) {
      throw CLI::ValidationError("one of --mock-worker and --url is needed");
    }
    options->worker.model = options->model;
    chosen = [options] {
      return options->mock_worker ? RunMockWorker(*options) : RunLoad(*options);
    };
  });
}

}  // namespace hayate::app
