#include "bench/gpu_cases.h"

#include <algorithm>

#include "base/clock.h"
#include "bench/gpu_operands.h"

namespace hayate::bench {
namespace {

constexpr double kBf16GflopPerS = 989.5e3;
constexpr double kFp8GflopPerS = 1979e3;
constexpr double kFp32GflopPerS = 66.9e3;

double CopyGbPerS() {
  constexpr int64_t kBytes = int64_t{2} << 30;
  constexpr int kCopies = 16, kRounds = 5;
  GpuOperands operands;
  std::byte* from = operands.Random(kBytes, DType::kBF16);
  std::byte* to = operands.Take(kBytes);
  operands.FinishLoading();
  const Stream stream = operands.stream();
  Device& device = *stream.device;
  const Event done = device.NewEvent();
  const SteadyClock clock;
  double best = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = clock.NowNs();
    for (int i = 0; i < kCopies; ++i) device.Copy(stream, to, from, size_t{kBytes});
    device.Record(done, stream);
    device.Synchronize(done);
    best = std::max(best, 2.0 * kCopies * kBytes / static_cast<double>(clock.NowNs() - begin_ns));
  }
  return best;
}

}  // namespace

std::vector<OpSpec> GpuOpSpecs() {
  std::vector<OpSpec> specs;
  AddGpuMatmulSpecs(specs);
  AddGpuAttentionSpecs(specs);
  AddGpuRowwiseSpecs(specs);
  return specs;
}

int32_t GpuCopies(int64_t bytes) {
  constexpr int64_t kRotated = int64_t{256} << 20;  // four times the cache of an H200
  constexpr int64_t kMostCopies = 64;
  return static_cast<int32_t>(std::clamp<int64_t>(kRotated / bytes + 1, 1, kMostCopies));
}

Roofline MeasureGpuRoofline() {
  return {.read_gb_per_s = CopyGbPerS(),
          .fp32_gflop_per_s = kFp32GflopPerS,
          .bf16_gflop_per_s = kBf16GflopPerS,
          .fp8_gflop_per_s = kFp8GflopPerS};
}

}  // namespace hayate::bench
