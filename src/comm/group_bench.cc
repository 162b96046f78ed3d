// Time of one exchange between two ranks, by message size; 576 floats is a decode step of SmolLM2.
// The counter best_ns is the quickest of all rounds: what an exchange costs when nothing else runs.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/group.h"

namespace hayate::comm {
namespace {

constexpr int kExchangesPerRound = 64;

// Ranks 0 and 1 on cores 0 and 1 do the same number of rounds; the state is rank 0's.
void AllReduceOfTwo(benchmark::State& state) {
  auto group = MakeLocalGroup(2).value();
  std::vector<float> data[2];
  const auto exchange = [&](size_t rank) {
    // A step writes its part anew before it is summed.
    data[rank].assign(data[rank].size(), 1.0f);
    group[rank]->AllReduce({}, {reinterpret_cast<std::byte*>(data[rank].data()), DType::kF32,
                                Shape{static_cast<int64_t>(data[rank].size())}});
  };
  for (auto& part : data) part.resize(static_cast<size_t>(state.range(0)));
  std::jthread partner([&] {
    PinThisThread(1);
    while (!group[1]->poisoned()) exchange(1);
  });
  PinThisThread(0);
  const SteadyClock clock;
  double best = std::numeric_limits<double>::max();
  for (auto _ : state) {
    const int64_t begin = clock.NowNs();
    for (int i = 0; i < kExchangesPerRound; ++i) exchange(0);
    const double each = static_cast<double>(clock.NowNs() - begin) / kExchangesPerRound;
    state.SetIterationTime(each * 1e-9);
    best = std::min(best, each);
  }
  group[0]->Poison();
  state.counters["best_ns"] = best;
}
BENCHMARK(AllReduceOfTwo)
    ->ArgName("floats")
    ->Arg(1)
    ->Arg(576)
    ->Arg(8 * 576)
    ->Arg(16 * 1024)
    ->Arg(16 * 1024 + 16)
    ->Arg(512 * 576)
    ->Iterations(2000)
    ->UseManualTime();

}  // namespace
}  // namespace hayate::comm
