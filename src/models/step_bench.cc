// Time of a step of the default model: decode of B sequences behind a context, and
// prefill of 512 tokens, on 1 and 2 ranks. best_ms is the quickest step: what it costs when nothing
// else runs. Needs the model (models/testing/default_model.h). And decode of a tiny DeepSeek V4
// with every kind of layer, on one core: at least 200 tokens/s.

#include <benchmark/benchmark.h>

#include <algorithm>

#include "base/clock.h"
#include "models/tensor_list.h"
#include "models/testing/default_model.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;

std::unique_ptr<ModelRunner> MakeRunner(benchmark::State& state,
                                        const weights::Checkpoint& checkpoint) {
  auto runner = ModelRunner::Create(checkpoint, {.num_ranks = static_cast<int>(state.range(0)),
                                                 .precision = ops::MatmulPrecision::kFast,
                                                 .kv_dtype = DType::kF16,
                                                 .page_tokens = 32,
                                                 .max_context = 1024,
                                                 .num_pages = 600,
                                                 .max_tokens = 512,
                                                 .pin = true});
  return std::move(runner).value();
}

std::vector<int32_t> Tokens(int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = (i * 7919) % 40000;
  return tokens;
}

// Times `steps` repetitions of the step that the runner last did.
void TimeSteps(benchmark::State& state, ModelRunner& runner, int steps, int tokens_per_step) {
  const SteadyClock clock;
  int64_t best_ns = runner.Repeat(steps / 4 + 1);
  for (auto _ : state) {
    const int64_t begin = clock.NowNs();
    best_ns = std::min(best_ns, runner.Repeat(steps));
    state.SetIterationTime(static_cast<double>(clock.NowNs() - begin) * 1e-9 / steps);
  }
  state.counters["best_ms"] = static_cast<double>(best_ns) * 1e-6;
  state.counters["best_tokens_per_s"] = tokens_per_step * 1e9 / static_cast<double>(best_ns);
}

void Decode(benchmark::State& state) {
  const auto path = testing::DefaultModelPath();
  if (!path) return state.SkipWithError("no default model");
  const auto checkpoint = weights::Checkpoint::Open(*path).value();
  auto runner = MakeRunner(state, checkpoint);
  const int batch = static_cast<int>(state.range(1));
  std::vector<testing::RunnerRow> rows;
  for (int b = 0; b < batch; ++b) {
    runner->Step({{b, Tokens(static_cast<int>(state.range(2)) - 1)}});
    rows.push_back({b, {100 + b}});
  }
  runner->Step(rows);
  TimeSteps(state, *runner, 64, batch);
}
BENCHMARK(Decode)
    ->ArgNames({"ranks", "batch", "context"})
    ->ArgsProduct({{1, 2}, {1, 8}, {32, 512}})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

void Prefill(benchmark::State& state) {
  const auto path = testing::DefaultModelPath();
  if (!path) return state.SkipWithError("no default model");
  const auto checkpoint = weights::Checkpoint::Open(*path).value();
  auto runner = MakeRunner(state, checkpoint);
  runner->Step({{0, Tokens(512)}});
  TimeSteps(state, *runner, 2, 512);
}
BENCHMARK(Prefill)
    ->ArgName("ranks")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

void DecodeTinyV4(benchmark::State& state) {
  auto checkpoint = weights::Checkpoint::OpenConfig("bench/models/deepseek-v4-tiny").value();
  CHECK(checkpoint.AddDummyTensors(ListTensors(checkpoint, DType::kBF16).value(), 1).ok());
  const auto context = static_cast<int>(state.range(0));
  const auto runner = ModelRunner::Create(checkpoint, {.precision = ops::MatmulPrecision::kFast,
                                                       .kv_dtype = DType::kBF16,
                                                       .page_tokens = 128,
                                                       .num_pages = 16,
                                                       .max_tokens = 512,
                                                       .pin = true})
                          .value();
  std::vector<int32_t> prompt = Tokens(context - 1);
  for (int32_t& token : prompt) token %= runner->vocab_size();
  runner->Step({{0, prompt}});
  runner->Step({{0, {100}}});
  TimeSteps(state, *runner, 64, 1);
}
BENCHMARK(DecodeTinyV4)
    ->ArgName("context")
    ->Arg(32)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

}  // namespace
}  // namespace hayate::models
