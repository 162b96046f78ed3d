#include "bench/sample_stats.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hayate::bench {

double Percentile(std::span<const double> sorted, double percent) {
  CHECK(!sorted.empty() && percent >= 0.0 && percent <= 100.0) << percent;
  const double rank = percent / 100.0 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

SampleStats Summarize(std::vector<double> samples) {
  SampleStats stats;
  if (samples.empty()) return stats;
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<double>(samples.size());
  stats.count = samples.size();
  for (const double sample : samples) stats.mean += sample / count;
  double variance = 0.0;
  for (const double sample : samples) {
    variance += (sample - stats.mean) * (sample - stats.mean) / count;
  }
  stats.std = std::sqrt(variance);
  stats.median = Percentile(samples, 50);
  stats.p90 = Percentile(samples, 90);
  stats.p99 = Percentile(samples, 99);
  stats.max = samples.back();
  return stats;
}

}  // namespace hayate::bench
