// Time of one exchange between two ranks, by message size. 576 floats is a decode step of SmolLM2.

#include <benchmark/benchmark.h>

#include <thread>

#include "base/thread.h"
#include "comm/group.h"

namespace hayate::comm {
namespace {

void AllReduceOfTwo(benchmark::State& state) {
  const int64_t count = state.range(0);
  auto group = MakeLocalGroup(2).value();
  std::vector<float> mine(static_cast<size_t>(count)), theirs(mine.size());
  const auto view = [](std::vector<float>& data) {
    return TensorView{reinterpret_cast<std::byte*>(data.data()), DType::kF32,
                      Shape{static_cast<int64_t>(data.size())}};
  };
  std::jthread partner([&] {
    PinThisThread(1);
    while (!group[1]->poisoned()) group[1]->AllReduce({}, view(theirs));
  });
  PinThisThread(0);
  for (auto _ : state) group[0]->AllReduce({}, view(mine));
  group[0]->Poison();
  state.SetBytesProcessed(state.iterations() * count * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(AllReduceOfTwo)
    ->Arg(1)
    ->Arg(576)
    ->Arg(4608)
    ->Arg(16384)
    ->Arg(16400)
    ->Arg(512 * 576)
    ->UseRealTime();

}  // namespace
}  // namespace hayate::comm
