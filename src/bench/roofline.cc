#include "bench/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/clock.h"

#if defined(__x86_64__)
// g++ 12 warns about the deliberately undefined registers inside its own header.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif

namespace hayate::bench {
namespace {

// Enough independent sums to fill two units of latency 4 to 6.
constexpr int kChains = 12;
constexpr int64_t kSteps = 1 << 18;
constexpr int kRounds = 9;

// The best of several rounds: a peak is what disturbances only lower.
double BestPerSecond(double amount, const std::function<void()>& run) {
  const SteadyClock clock;
  double best = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = clock.NowNs();
    run();
    const auto ns = static_cast<double>(std::max<int64_t>(1, clock.NowNs() - begin_ns));
    best = std::max(best, amount / ns * 1e9);
  }
  return best;
}

double ReadBytesPerSecond() {
  std::vector<uint64_t> data(static_cast<size_t>(ColdBytes()) / sizeof(uint64_t), 1);
  volatile uint64_t sink = 0;
  return BestPerSecond(static_cast<double>(data.size() * sizeof(uint64_t)), [&] {
    uint64_t sums[8] = {};
    for (size_t i = 0; i + 8 <= data.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += data[i + j];
    }
    for (const uint64_t sum : sums) sink = sink + sum;
  });
}

#if defined(__x86_64__)

// Keeps the sums alive without storing them in the loop.
#define HAYATE_KEEP(value) asm volatile("" : "+x"(value))
#define HAYATE_KEEP512(value) asm volatile("" : "+v"(value))

__attribute__((target("avx2,fma"))) void FmaAvx2() {
  __m256 sums[kChains];
  for (auto& sum : sums) sum = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(1.5f);
  for (int64_t step = 0; step < kSteps; ++step) {
    HAYATE_KEEP(x);
    for (auto& sum : sums) sum = _mm256_fmadd_ps(x, x, sum);
  }
  for (auto& sum : sums) HAYATE_KEEP(sum);
}

__attribute__((target("avx512f"))) void FmaAvx512() {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  __m512 x = _mm512_set1_ps(1.5f);
  for (int64_t step = 0; step < kSteps; ++step) {
    HAYATE_KEEP512(x);
    for (auto& sum : sums) sum = _mm512_fmadd_ps(x, x, sum);
  }
  for (auto& sum : sums) HAYATE_KEEP512(sum);
}

__attribute__((target("avx512f,avx512vnni"))) void DotInt8Avx512() {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  __m512i x = _mm512_set1_epi8(3);
  for (int64_t step = 0; step < kSteps; ++step) {
    HAYATE_KEEP512(x);
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, x);
  }
  for (auto& sum : sums) HAYATE_KEEP512(sum);
}

__attribute__((target("avx512f,avx512vl,avx512bw,avx512bf16"))) void DotBf16Avx512() {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  __m512i x = _mm512_set1_epi16(0x3FC0);  // 1.5
  for (int64_t step = 0; step < kSteps; ++step) {
    HAYATE_KEEP512(x);
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)x);
  }
  for (auto& sum : sums) HAYATE_KEEP512(sum);
}

#undef HAYATE_KEEP
#undef HAYATE_KEEP512

#endif

}  // namespace

int64_t ColdBytes() {
  constexpr int64_t kAssumedCacheBytes = 32 << 20;
  const int64_t cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  // Four times the cache: a replacement policy that keeps part of a cyclic walk helps little then.
  return 4 * std::max(cache, kAssumedCacheBytes);
}

Roofline MeasureRoofline([[maybe_unused]] const CpuFeatures& features) {
  Roofline roofline;
  roofline.read_gb_per_s = ReadBytesPerSecond() * 1e-9;
#if defined(__x86_64__)
  // Per chain and step, operations of a lane's multiply-add.
  const auto peak = [](int lanes, int products, void (*run)()) {
    return BestPerSecond(2.0 * lanes * products * kChains * static_cast<double>(kSteps), run) *
           1e-9;
  };
  if (features.avx512) {
    roofline.fp32_gflop_per_s = peak(16, 1, FmaAvx512);
  } else if (features.avx2) {
    roofline.fp32_gflop_per_s = peak(8, 1, FmaAvx2);
  }
  if (features.avx512_vnni) roofline.int8_gop_per_s = peak(16, 4, DotInt8Avx512);
  if (features.avx512_bf16) roofline.bf16_gflop_per_s = peak(16, 2, DotBf16Avx512);
#endif
  return roofline;
}

}  // namespace hayate::bench
