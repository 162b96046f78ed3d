#pragma once
// Mean, spread and percentiles of measured samples.

#include <cstddef>
#include <span>
#include <vector>

namespace hayate::bench {

// All zero when there are no samples.
struct SampleStats {
  size_t count = 0;
  double mean = 0.0;
  double std = 0.0;  // of the population
  double median = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

SampleStats Summarize(std::vector<double> samples);

// `sorted` is ascending and not empty, `percent` in [0, 100]. Between two samples the value is
// interpolated linearly, as numpy does by default, so that figures compare with those of Python
// clients.
double Percentile(std::span<const double> sorted, double percent);

}  // namespace hayate::bench
