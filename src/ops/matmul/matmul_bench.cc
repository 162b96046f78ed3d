// GB/s of weights streamed and GFLOP/s of the shapes of SmolLM2-135M, whole and as one of two ranks
// computes it. Weights rotate through more memory than the caches hold.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/matmul/kernels.h"
#include "ops/matmul/testing/random_weights.h"

namespace hayate::ops::matmul {
namespace {

constexpr int64_t kRotatedBytes = int64_t{160} << 20;

struct Case {
  const char* name;
  DType dtype;
  int64_t n, k;
};

void RunCase(benchmark::State& state, const Kernels& kernels, const Case& c, int64_t t) {
  const auto device = MakeCpuDevice(0);
  Workspace workspace(
      Buffer::Allocate(*device, static_cast<size_t>(MatmulWorkspaceBytes(t, c.k))).value());
  const RandomWeights weights(c.dtype, c.n, c.k, 1);
  const MatrixPiece piece = MatrixPiece::Whole(weights.view());
  std::vector<PackedMatrix> copies;
  int64_t bytes = 0;
  do {
    copies.push_back(PackMatrixFor(kernels, *device, {&piece, 1}, MatmulPrecision::kFast).value());
    bytes += static_cast<int64_t>(copies.back().storage.size());
  } while (bytes < kRotatedBytes && t <= 16);
  Rng rng(2);
  std::vector<float> x(static_cast<size_t>(t * c.k)), out(static_cast<size_t>(t * c.n));
  for (float& value : x) value = rng.NextNormal();
  size_t next = 0;
  for (auto _ : state) {
    MatmulWith(kernels, workspace,
               {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {t, c.n}},
                .x = TensorView{reinterpret_cast<std::byte*>(x.data()), DType::kF32, {t, c.k}},
                .w = &copies[next]});
    next = (next + 1) % copies.size();
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double runs = static_cast<double>(state.iterations());
  state.counters["weight_GB/s"] =
      Counter(runs * 1e-9 * static_cast<double>(copies[0].storage.size()), Counter::kIsRate);
  state.counters["GFLOP/s"] = Counter(
      runs * 2e-9 * static_cast<double>(t * c.n) * static_cast<double>(c.k), Counter::kIsRate);
}

// What one core reads from memory, for the share of it that one token reaches.
void ReadBandwidth(benchmark::State& state) {
  std::vector<uint64_t> data(static_cast<size_t>(state.range(0)) / 8, 1);
  for (auto _ : state) {
    uint64_t sums[8] = {};
    for (size_t i = 0; i < data.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += data[i + j];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void RegisterAll() {
  const Case cases[] = {
      {"q4_1/gate_up_half", DType::kQ4_1, 1536, 576}, {"q4_1/down_half", DType::kQ4_1, 576, 768},
      {"q4_1/qkv_half", DType::kQ4_1, 576, 576},      {"q4_1/out_half", DType::kQ4_1, 576, 320},
      {"q8_0/head_half", DType::kQ8_0, 24576, 576},   {"q4_0/gate_up", DType::kQ4_0, 3072, 576},
      {"q8_0/gate_up", DType::kQ8_0, 3072, 576},      {"q4_k/4096", DType::kQ4_K, 4096, 4096},
      {"q6_k/4096", DType::kQ6_K, 4096, 4096},        {"bf16/gate_up", DType::kBF16, 3072, 576},
      {"f16/gate_up", DType::kF16, 3072, 576},
  };
  for (const Kernels* kernels : AvailableKernels(DetectCpuFeatures())) {
    for (const Case& c : cases) {
      for (const int64_t t : {1, 2, 4, 8, 512}) {
        if (t == 512 && c.n * c.k > 4'000'000) continue;
        const std::string name =
            std::string(kernels->name) + "/" + c.name + "/" + std::to_string(t);
        benchmark::RegisterBenchmark(name.c_str(), [kernels, c, t](benchmark::State& state) {
          RunCase(state, *kernels, c, t);
        });
      }
    }
  }
  benchmark::RegisterBenchmark("read", ReadBandwidth)->Arg(128 << 20);
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace hayate::ops::matmul
