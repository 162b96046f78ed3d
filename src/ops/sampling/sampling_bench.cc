// Microseconds to draw one token, by vocabulary and by what the row asks for.

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "ops/sampling/sampling.h"

namespace hayate::ops {
namespace {

void Draw(benchmark::State& state, SamplingRow row) {
  const int32_t vocab_size = static_cast<int32_t>(state.range(0));
  auto device = MakeCpuDevice(0);
  Workspace workspace(
      Buffer::Allocate(*device, static_cast<size_t>(SampleWorkspaceBytes(vocab_size))).value());
  Rng rng(1);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (float& x : logits) x = 3.0f * rng.NextNormal();
  row.logits = logits.data();
  SamplingResult result;
  for (auto _ : state) {
    ++row.position;
    Sample({}, workspace, vocab_size, {&row, 1}, {&result, 1});
    benchmark::DoNotOptimize(result.token);
  }
}
#define HAYATE_DRAW(name, ...)                            \
  BENCHMARK_CAPTURE(Draw, name, SamplingRow{__VA_ARGS__}) \
      ->Arg(49152)                                        \
      ->Arg(151936)                                       \
      ->Unit(benchmark::kMicrosecond)
HAYATE_DRAW(greedy, .temperature = 0.0f);
HAYATE_DRAW(temperature, .temperature = 0.8f);
HAYATE_DRAW(top_k_50, .temperature = 0.8f, .top_k = 50);
HAYATE_DRAW(top_p_95, .temperature = 0.8f, .top_p = 0.95f);
HAYATE_DRAW(top_k_p, .temperature = 0.8f, .top_k = 50, .top_p = 0.95f);
HAYATE_DRAW(greedy_logprobs, .temperature = 0.0f, .num_logprobs = 5);

}  // namespace
}  // namespace hayate::ops
