#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/bench_commands.h"
#include "app/engine_stack.h"
#include "app/load_progress.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/rng.h"
#include "obs/step_trace.h"

namespace hayate::app {
namespace {

constexpr int32_t kWholeChunk = 131072;  // as many prompt tokens as --chunked-prefill-size allows

struct BenchOfflineOptions {
  ModelOptions model;
  int32_t num_prompts = 1000;
  int32_t input_len = 1000;
  int32_t output_len = 1000;
  double range_ratio = 1.0;  // lengths are uniform in [ratio × length, length]
  uint64_t seed = 0;
  bool json = false;
  std::string output_file;
  std::string trace_file;
};

struct OfflineResult {
  int64_t input_tokens = 0, output_tokens = 0;
  double seconds = 0.0;
  double first_token_s = 0.0;  // of the first request that brought one
  double ready_s = 0.0;        // from the start of loading
};

// The engine in this process, all requests handed over at once.
class OfflineRun {
 public:
  static Result<std::unique_ptr<OfflineRun>> Create(const BenchOfflineOptions& options) {
    auto run = std::unique_ptr<OfflineRun>(new OfflineRun(options));
    const int64_t begin_ns = run->clock_.NowNs();
    LoadProgress progress;
    EngineStack::Options stack;
    stack.model = options.model;
    stack.model.max_queued_requests = std::max(options.num_prompts, 1024);
    // Nobody reads the answers as they come: prompts need not make room for them.
    if (stack.model.mixed_chunk_size == 0) stack.model.mixed_chunk_size = kWholeChunk;
    stack.progress = [&progress](int64_t done, int64_t total) { progress.Update(done, total); };
    stack.wakes.push_back([raw = run.get()] {
      {
        const std::lock_guard lock(raw->mutex_);
        raw->signalled_ = true;
      }
      raw->arrived_.notify_one();
    });
    auto made = EngineStack::Create(std::move(stack));
    progress.Finish();
    if (!made.ok()) return made.status();
    run->stack_ = std::move(made).value();
    run->stack_->Start();
    run->result_.ready_s = run->SecondsSince(begin_ns);
    return run;
  }
  ~OfflineRun() {
    if (stack_) stack_->Stop(0);
  }

  Result<OfflineResult> Run() {
    // One request alone first: libraries are set up and graphs captured outside the measurement.
    RETURN_IF_ERROR(Submit(options_.input_len, std::min(options_.output_len, 32)));
    RETURN_IF_ERROR(AwaitAll(1));
    const double ready_s = result_.ready_s;
    result_ = {.ready_s = ready_s};
    begin_ns_ = clock_.NowNs();
    for (int32_t i = 0; i < options_.num_prompts; ++i) {
      RETURN_IF_ERROR(Submit(Length(options_.input_len), Length(options_.output_len)));
    }
    RETURN_IF_ERROR(AwaitAll(options_.num_prompts));
    result_.seconds = SecondsSince(begin_ns_);
    return result_;
  }
  // The last steps, at most as many as the engine remembers.
  std::string TraceJson() const {
    const obs::StepLog& log = stack_->step_log();
    return obs::StepTraceJson(log.Snapshot(std::numeric_limits<size_t>::max()));
  }

 private:
  explicit OfflineRun(const BenchOfflineOptions& options) : options_(options), rng_(options.seed) {}

  double SecondsSince(int64_t begin_ns) const {
    return static_cast<double>(clock_.NowNs() - begin_ns) * 1e-9;
  }
  int32_t Length(int32_t longest) {
    const auto shortest =
        std::max(1, static_cast<int32_t>(static_cast<double>(longest) * options_.range_ratio));
    return shortest + static_cast<int32_t>(
                          rng_.Below(static_cast<uint32_t>(std::max(1, longest - shortest + 1))));
  }

  Status Submit(int32_t input, int32_t output) {
    if (input + output > stack_->max_context()) {
      return Error(ErrorCode::kInvalidArgument, "{} tokens in and {} out; the context holds {}",
                   input, output, stack_->max_context());
    }
    Request request;
    request.id = stack_->client().NewId();
    for (int32_t i = 0; i < input; ++i) {
      request.prompt.push_back(
          static_cast<TokenId>(rng_.Below(static_cast<uint32_t>(stack_->facts().vocab_size))));
    }
    request.sampling.temperature = 0.0f;
    request.sampling.max_new_tokens = output;
    request.sampling.ignore_eos = true;
    result_.input_tokens += input;
    return stack_->client().Submit(std::move(request));
  }

  Status AwaitAll(int32_t wanted) {
    std::vector<TokenEvent> events;
    for (int32_t finished = 0; finished < wanted;) {
      {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [this] { return signalled_; });
        signalled_ = false;
      }
      stack_->outbox(0).Drain(events);
      for (const TokenEvent& event : events) {
        if (event.finish == FinishReason::kAbort) return event.status;
        if (result_.output_tokens == 0 && !event.tokens.empty()) {
          result_.first_token_s = SecondsSince(begin_ns_);
        }
        result_.output_tokens += static_cast<int64_t>(event.tokens.size());
        finished += event.finish.has_value() ? 1 : 0;
      }
    }
    return OkStatus();
  }

  const BenchOfflineOptions& options_;
  Rng rng_;
  SteadyClock clock_;
  int64_t begin_ns_ = 0;
  OfflineResult result_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  bool signalled_ = false;  // guarded by mutex_
  std::unique_ptr<EngineStack> stack_;
};

std::string ToJson(const BenchOfflineOptions& options, const OfflineResult& result) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("model", options.model.model_path);
  json.Field("quantization", options.model.quantization);
  json.Field("kv_cache_dtype", options.model.kv_cache_dtype);
  json.Field("num_prompts", options.num_prompts);
  json.Field("input_len", options.input_len);
  json.Field("output_len", options.output_len);
  json.Field("range_ratio", options.range_ratio);
  json.Field("seed", static_cast<int64_t>(options.seed));
  json.Field("ready_s", result.ready_s);
  json.Field("first_token_s", result.first_token_s);
  json.Field("seconds", result.seconds);
  json.Field("input_tokens", result.input_tokens);
  json.Field("output_tokens", result.output_tokens);
  json.Field("output_tokens_per_s", static_cast<double>(result.output_tokens) / result.seconds);
  json.Field("total_tokens_per_s",
             static_cast<double>(result.input_tokens + result.output_tokens) / result.seconds);
  json.EndObject();
  return out;
}

Status Write(const std::string& path, std::ios::openmode mode, const std::string& text) {
  std::ofstream file(path, mode);
  file << text;
  if (file.flush()) return OkStatus();
  return Error(ErrorCode::kIo, "cannot write {}", path);
}

Status BenchOffline(const BenchOfflineOptions& options) {
  ASSIGN_OR_RETURN(const auto run, OfflineRun::Create(options));
  ASSIGN_OR_RETURN(const OfflineResult result, run->Run());
  const std::string line = ToJson(options, result);
  if (options.json) {
    fmt::print("{}\n", line);
  } else {
    fmt::print("{:.0f} output tokens/s, {:.0f} with the prompts; {} requests in {:.2f} s\n",
               static_cast<double>(result.output_tokens) / result.seconds,
               static_cast<double>(result.input_tokens + result.output_tokens) / result.seconds,
               options.num_prompts, result.seconds);
  }
  if (!options.output_file.empty()) {
    RETURN_IF_ERROR(Write(options.output_file, std::ios::app, line + '\n'));
  }
  if (options.trace_file.empty()) return OkStatus();
  return Write(options.trace_file, std::ios::trunc, run->TraceJson());
}

}  // namespace

void AddBenchOffline(CLI::App& bench, Command& chosen) {
  CLI::App* command =
      bench.add_subcommand("offline", "Throughput of many requests handed over at once, no HTTP");
  auto options = std::make_shared<BenchOfflineOptions>();
  command->add_option("--num-prompts", options->num_prompts)
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--input-len", options->input_len, "tokens of a prompt, random ids")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--output-len", options->output_len, "tokens of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--range-ratio", options->range_ratio,
                   "lengths are uniform from this share of the above to the whole")
      ->check(NumberBetween(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of ids and lengths");
  command->add_flag("--json", options->json, "one JSON object");
  command->add_option("--output-file", options->output_file, "a line of JSON is appended to it");
  command->add_option("--trace-file", options->trace_file,
                      "the last steps, at most 4,096, for chrome://tracing and ui.perfetto.dev");
  AddModelFlags(*command, options->model);
  AddSchedulingFlags(*command, options->model);
  command->callback([&chosen, options] { chosen = [options] { return BenchOffline(*options); }; });
}

}  // namespace hayate::app
