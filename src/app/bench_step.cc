#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "app/bench_commands.h"
#include "app/engine_stack.h"
#include "bench/step_timing.h"

namespace hayate::app {
namespace {

struct BenchStepOptions {
  ModelOptions model;
  bench::StepBenchOptions step;
  bool json = false;
};

// Of all ranks together.
int64_t CacheBytesPerToken(const exec::LocalExecutor& executor) {
  const CacheLayout& layout = executor.cache_layout();
  int64_t page_bytes = 0;
  for (const CacheGroup& group : layout.groups) page_bytes += group.page_bytes;
  return page_bytes * executor.num_ranks() / layout.page_tokens;
}

Status BenchStep(const BenchStepOptions& options) {
  const bench::StepBenchOptions& step = options.step;
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(options.model));
  ASSIGN_OR_RETURN(ModelOptions model, WithDeviceDefaults(options.model));
  model.cuda_graph_max_bs = model.disable_cuda_graph ? 0 : step.batch;
  model.max_running_requests = bench::StepBenchSlots(step);
  model.max_total_tokens = bench::StepBenchTokens(step, model.page_size);
  if (model.context_length == 0) {
    const int32_t longest =
        step.prefill > 0 ? step.prefill : std::max(step.context + step.steps, step.chunk);
    model.context_length = longest + 1;
  }
  sched::SchedulerOptions limits;
  limits.max_running = model.max_running_requests;
  limits.chunked_prefill_size = std::max({step.prefill, step.chunk, model.chunked_prefill_size});
  ASSIGN_OR_RETURN(const exec::ExecutorOptions executor_options,
                   MakeExecutorOptions(model, limits));
  ASSIGN_OR_RETURN(const auto executor, exec::LocalExecutor::Create(*checkpoint, executor_options));
  const bench::StepBenchResult result =
      bench::RunStepBench({.executor = executor.get(),
                           .vocab_size = executor->facts().vocab_size,
                           .layout = &executor->cache_layout(),
                           .pool_pages = executor->pool_pages(),
                           .max_step_tokens = executor_options.max_step_tokens},
                          step);
  if (options.json) {
    fmt::print("{}\n", bench::ToJson(step, result,
                                     {.model = checkpoint->path().filename().string(),
                                      .device = executor->device_name(),
                                      .num_ranks = executor->num_ranks(),
                                      .weight_bytes = executor->weight_bytes(),
                                      .cache_bytes_per_token = CacheBytesPerToken(*executor)}));
  } else {
    fmt::print("{:.1f} tokens/s, {:.3f} ms a step (median of {})\n", result.median_tokens_per_s(),
               result.median_step_ms(), step.repeats);
  }
  return OkStatus();
}

}  // namespace

void AddBenchStep(CLI::App& bench, Command& chosen) {
  CLI::App* command = bench.add_subcommand("step", "Time steps of a fixed composition");
  auto options = std::make_shared<BenchStepOptions>();
  command->add_option("--prefill", options->step.prefill, "time a prompt of so many tokens")
      ->check(CLI::Range(0, bench::StepBenchOptions::kMaxTokens));
  command->add_option("--batch", options->step.batch, "decode: sequences")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--context", options->step.context, "decode: tokens in the cache")
      ->check(CLI::Range(1, bench::StepBenchOptions::kMaxTokens))
      ->capture_default_str();
  command->add_option("--steps", options->step.steps, "decode: timed steps")
      ->check(CLI::Range(1, bench::StepBenchOptions::kMaxTokens))
      ->capture_default_str();
  command
      ->add_option("--chunk", options->step.chunk,
                   "decode: prompt tokens beside, in every step, of prompts of --context tokens")
      ->check(CLI::Range(0, bench::StepBenchOptions::kMaxTokens))
      ->excludes("--prefill");
  command->add_option("--repeats", options->step.repeats)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seed", options->step.seed, "of the random token ids");
  command->add_flag("--json", options->json, "one JSON object");
  AddModelFlags(*command, options->model);
  AddSchedulingFlags(*command, options->model);
  command->callback([&chosen, options] { chosen = [options] { return BenchStep(*options); }; });
}

}  // namespace hayate::app
