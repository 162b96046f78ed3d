// hayate bench serve: a load test of any OpenAI-compatible server, with the flags of SGLang's
// bench_serving.

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>

#include "app/bench_commands.h"
#include "app/commands.h"
#include "app/server_address.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/load_generator.h"
#include "http/client.h"

namespace hayate::app {
namespace {

constexpr double kAllAtOnce = std::numeric_limits<double>::infinity();
// Of ids that a server's vocabulary holds when it does not tell its size: that of Llama 2, the
// smallest among common models.
constexpr int32_t kCommonVocabSize = 32000;
constexpr int32_t kMaxCount = 10'000'000;

struct BenchServeOptions {
  std::string base_url;
  std::string host = "127.0.0.1";
  int port = 30000;
  std::string api_key;
  std::string backend = "openai";
  std::string model;
  std::string dataset = "random";
  std::string prompt_form = "auto";
  bench::RandomWorkload workload{.num_prompts = 100};
  double request_rate = kAllAtOnce;
  int32_t max_concurrency = 0;
  int32_t warmup_requests = 1;
  bool disable_ignore_eos = false;
  double temperature = 0.0;
  std::string extra_body;
  int32_t prompts_per_group = 0;  // 0: num_prompts says how many in all
  bool flush_cache = false;
  double request_timeout_s = 3600.0;
  std::string output_file;
  bool output_details = false;
  bool json = false;
};

// Every stream is a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void ShowProgress(const bench::LoadProgressReport& report, int32_t total) {
  fmt::print(stderr, "\r\033[K{} of {} done, {} in flight{}", report.done, total, report.in_flight,
             report.failed > 0 ? fmt::format(", {} failed", report.failed) : "");
  std::fflush(stderr);
}

Result<bench::DialectOptions> MakeDialect(const BenchServeOptions& options,
                                          const ServerAddress& address) {
  bench::DialectOptions dialect;
  ASSIGN_OR_RETURN(dialect.dialect, bench::ParseBackend(options.backend));
  if (!options.extra_body.empty()) RETURN_IF_ERROR(bench::CheckExtraBody(options.extra_body));
  dialect.base_path = address.base_path;
  dialect.api_key = options.api_key;
  dialect.ignore_eos = !options.disable_ignore_eos;
  dialect.temperature = options.temperature;
  dialect.extra_body = options.extra_body;
  return dialect;
}

Result<bench::RandomWorkload> MakeWorkload(const BenchServeOptions& options,
                                           bench::StreamDialect dialect, const ServerFacts& facts) {
  bench::RandomWorkload workload = options.workload;
  const bool chat = dialect == bench::StreamDialect::kChat;
  if (chat && options.prompt_form == "ids") {
    return Error(ErrorCode::kInvalidArgument, "--prompt-form ids: chat takes text alone");
  }
  if (chat || options.prompt_form == "text") {
    workload.prompts = bench::RandomWorkload::Prompts::kText;
  }
  if (options.dataset.starts_with("random")) workload.shared_prefix_tokens = 0;
  if (options.prompts_per_group > 0) {
    const int64_t prompts = int64_t{options.prompts_per_group} * workload.num_prefix_groups;
    if (prompts > kMaxCount) {
      return Error(ErrorCode::kInvalidArgument, "--gsp-prompts-per-group: {} prompts are too many",
                   prompts);
    }
    workload.num_prompts = static_cast<int32_t>(prompts);
  }
  if (workload.vocab_size == 0) workload.vocab_size = facts.vocab_size;
  if (workload.vocab_size == 0) workload.vocab_size = kCommonVocabSize;
  return workload;
}

// Prompts of another seed, so that they are no prefixes of the measured ones.
Status WarmUp(const bench::LoadOptions& load, bench::RandomWorkload workload,
              int32_t num_requests) {
  if (num_requests == 0) return OkStatus();
  workload.seed = ~workload.seed;
  workload.num_prompts = num_requests;
  const auto requests = bench::MakeRandomWorkload(workload);
  ASSIGN_OR_RETURN(
      const bench::LoadResult result,
      bench::RunLoad(load, requests, bench::ArrivalTimes(num_requests, kAllAtOnce, 0)));
  const bench::LoadSummary summary = bench::SummarizeLoad(result);
  if (summary.completed > 0) return OkStatus();
  return Error(ErrorCode::kUnavailable, "every warm-up request failed: {}",
               summary.errors.front().first);
}

Status FlushCache(const ServerAddress& address, const std::string& api_key) {
  ASSIGN_OR_RETURN(auto client, http::BlockingClient::Create(
                                    address.endpoint, {.head_timeout = std::chrono::seconds(30)}));
  http::ClientRequest request{.method = "POST", .target = address.base_path + "/flush_cache"};
  if (!api_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key);
  constexpr size_t kMaxAnswerBytes = 64 << 10;
  ASSIGN_OR_RETURN(const auto answer, client.Fetch(std::move(request), kMaxAnswerBytes));
  if (answer.status == 200) return OkStatus();
  return Error(ErrorCode::kUnavailable, "{}/flush_cache answers {}: {}", address.url, answer.status,
               answer.body);
}

bench::LoadSettings MakeSettings(const BenchServeOptions& options, const ServerAddress& address,
                                 const std::string& model, const bench::RandomWorkload& workload) {
  bench::LoadSettings settings;
  settings.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(UnixSeconds()));
  settings.backend = options.backend;
  settings.base_url = address.url;
  settings.model = model;
  settings.dataset = options.dataset;
  settings.random_input_len = workload.input_tokens;
  settings.random_output_len = workload.output_tokens;
  settings.random_range_ratio = workload.range_ratio;
  settings.shared_prefix_len = workload.shared_prefix_tokens;
  settings.request_rate = options.request_rate;
  settings.max_concurrency = options.max_concurrency;
  settings.seed = workload.seed;
  return settings;
}

Status AppendLine(const std::string& path, const std::string& line) {
  std::ofstream file(path, std::ios::app);
  file << line << '\n';
  file.flush();
  if (file) return OkStatus();
  return Error(ErrorCode::kIo, "cannot write {}", path);
}

Status BenchServe(const BenchServeOptions& options) {
  const std::string url =
      options.base_url.empty()
          ? "http://" + http::Endpoint{options.host, static_cast<uint16_t>(options.port)}.ToString()
          : options.base_url;
  ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(url));
  RaiseDescriptorLimit();
  bench::LoadOptions load;
  ASSIGN_OR_RETURN(load.dialect, MakeDialect(options, address));
  ASSIGN_OR_RETURN(const ServerFacts facts, AskServer(address, options.api_key, options.model));
  ASSIGN_OR_RETURN(const bench::RandomWorkload workload,
                   MakeWorkload(options, load.dialect.dialect, facts));
  load.endpoint = address.endpoint;
  load.dialect.model = facts.model;
  load.max_concurrency = options.max_concurrency;
  load.request_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.request_timeout_s * 1e3));
  RETURN_IF_ERROR(WarmUp(load, workload, options.warmup_requests));
  if (options.flush_cache) RETURN_IF_ERROR(FlushCache(address, options.api_key));

  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  if (terminal) {
    load.progress = [total = workload.num_prompts](const auto& report) {
      ShowProgress(report, total);
    };
  }
  const auto requests = bench::MakeRandomWorkload(workload);
  const auto arrivals =
      bench::ArrivalTimes(workload.num_prompts, options.request_rate, workload.seed);
  ASSIGN_OR_RETURN(const bench::LoadResult result, bench::RunLoad(load, requests, arrivals));
  if (terminal) fmt::print(stderr, "\r\033[K");

  const bench::LoadSummary summary = bench::SummarizeLoad(result);
  const bench::LoadSettings settings = MakeSettings(options, address, facts.model, workload);
  const std::string line = bench::ToJson(
      settings, summary, result,
      options.output_details ? bench::JsonDetail::kPerRequest : bench::JsonDetail::kSummary);
  fmt::print("{}\n", options.json ? line : bench::RenderTable(settings, summary));
  if (!options.output_file.empty()) RETURN_IF_ERROR(AppendLine(options.output_file, line));
  if (summary.completed > 0) return OkStatus();
  return Error(ErrorCode::kUnavailable, "no request was answered");
}

// CLI::PositiveNumber refuses infinity. Returns what is wrong with the text.
std::string IsPositiveRate(const std::string& text) {
  double rate = 0.0;
  if (CLI::detail::lexical_cast(text, rate) && rate > 0.0) return "";
  return "'" + text + "' is no positive number";
}

void AddServerFlags(CLI::App& command, BenchServeOptions& o) {
  const char* group = "Server";
  command.add_option("--base-url", o.base_url, "http://host:port; instead of --host and --port")
      ->group(group);
  command.add_option("--host", o.host)->capture_default_str()->group(group);
  command.add_option("--port", o.port)
      ->check(CLI::Range(1, 65535))
      ->capture_default_str()
      ->group(group);
  command.add_option("--api-key", o.api_key, "sent as a bearer token")
      ->envname("HAYATE_API_KEY")
      ->group(group);
  command
      .add_option("--backend", o.backend,
                  "what to speak: openai, sglang-oai, vllm: /v1/completions; openai-chat, "
                  "sglang-oai-chat, vllm-chat: chat; sglang: /generate")
      ->check(CLI::IsMember(bench::BackendNames()))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--model,--served-model-name", o.model,
                  "the first that the server lists, without it")
      ->group(group);
  command.add_option("--extra-request-body", o.extra_body, "JSON object added to every request")
      ->group(group);
}

void AddWorkloadFlags(CLI::App& command, BenchServeOptions& o) {
  const char* group = "Workload";
  command
      .add_option("--dataset-name", o.dataset,
                  "random, random-ids: of random tokens; shared-prefix, generated-shared-prefix: "
                  "in groups that begin alike")
      ->check(CLI::IsMember({"random", "random-ids", "shared-prefix", "generated-shared-prefix"}))
      ->capture_default_str()
      ->group(group);
  const auto add_count = [&](const char* name, int32_t& value, const char* help) {
    command.add_option(name, value, help)
        ->check(CLI::Range(1, kMaxCount))
        ->capture_default_str()
        ->group(group);
  };
  add_count("--num-prompts", o.workload.num_prompts, "requests");
  add_count("--random-input-len,--gsp-question-len", o.workload.input_tokens,
            "longest prompt, tokens");
  add_count("--random-output-len,--gsp-output-len", o.workload.output_tokens,
            "longest answer, tokens");
  command
      .add_option("--random-range-ratio", o.workload.range_ratio,
                  "lengths are uniform in [ratio x longest, longest]")
      ->check(NumberBetween(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--shared-prefix-len,--gsp-system-prompt-len", o.workload.shared_prefix_tokens,
                  "shared-prefix: tokens before --random-input-len others")
      ->check(CLI::Range(0, kMaxCount))
      ->group(group);
  add_count("--num-prefix-groups,--gsp-num-groups", o.workload.num_prefix_groups,
            "shared-prefix: groups");
  command
      .add_option("--gsp-prompts-per-group", o.prompts_per_group,
                  "shared-prefix: instead of --num-prompts")
      ->check(CLI::Range(1, kMaxCount))
      ->group(group);
  command.add_option("--prompt-form", o.prompt_form, "ids, text, or auto: ids, but text for chat")
      ->check(CLI::IsMember({"auto", "ids", "text"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--vocab-size", o.workload.vocab_size,
                  "ids are below it; 0: as the server says, else 32000")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command.add_option("--temperature", o.temperature)
      ->check(NumberBetween(0.0, 100.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--disable-ignore-eos", o.disable_ignore_eos,
                "let answers end early; by default they have their full length")
      ->group(group);
  command.add_option("--seed", o.workload.seed, "of prompts, lengths and arrivals")
      ->capture_default_str()
      ->group(group);
}

void AddLoadFlags(CLI::App& command, BenchServeOptions& o) {
  const char* group = "Load";
  command
      .add_option("--request-rate", o.request_rate,
                  "requests a second, as a Poisson process; inf: all at once")
      ->check(IsPositiveRate, "RATE")
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-concurrency", o.max_concurrency, "requests in flight; 0: no limit")
      ->check(CLI::Range(0, bench::kMaxConcurrency))
      ->capture_default_str()
      ->group(group);
  command.add_option("--warmup-requests", o.warmup_requests, "sent before, not measured")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--flush-cache", o.flush_cache, "empty the server's prefix cache before measuring")
      ->group(group);
  command
      .add_option("--request-timeout", o.request_timeout_s,
                  "seconds until an unanswered request counts as failed")
      ->check(NumberBetween(0.001, 1e6))
      ->capture_default_str()
      ->group(group);
  command.add_option("--output-file", o.output_file, "a line of JSON is appended to it")
      ->group(group);
  command.add_flag("--output-details", o.output_details, "per-request arrays in the JSON")
      ->group(group);
  command.add_flag("--json", o.json, "print JSON instead of a table")->group(group);
}

// Of bench_serving's start lines: nothing of the kind is needed here.
void AddIgnoredFlags(CLI::App& command) {
  const char* group = "Accepted without effect";
  command
      .add_flag_function(
          "--disable-tqdm", [](int64_t) {}, "progress is shown on a terminal alone")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--tokenizer", [](const std::string&) {}, "prompts are ids, or words")
      ->group(group);
}

}  // namespace

void AddBenchServe(CLI::App& bench, Command& chosen) {
  CLI::App* command =
      bench.add_subcommand("serve", "Load a server and measure latency and throughput");
  auto options = std::make_shared<BenchServeOptions>();
  AddServerFlags(*command, *options);
  AddWorkloadFlags(*command, *options);
  AddLoadFlags(*command, *options);
  AddIgnoredFlags(*command);
  command->callback([&chosen, options] { chosen = [options] { return BenchServe(*options); }; });
}

}  // namespace hayate::app
