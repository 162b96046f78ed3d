#pragma once
// The time of a step against its tokens: what a draft more costs. Measured once, at the start.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "core/step_executor.h"
#include "tensor/cache_layout.h"

namespace hayate::spec {

class StepCost {
 public:
  struct Point {
    int32_t tokens = 0;
    double ns = 0;
  };
  // At least one point, tokens ≥ 1 and rising; times are made to rise with them.
  explicit StepCost(std::vector<Point> points);

  // Straight lines between the points and on beyond the last; the first point's time before it.
  double Ns(int32_t tokens) const;
  // The time of the next larger point: what a step of so many tokens may take where kernels work in
  // tiles. Beyond the last as Ns.
  double MostNs(int32_t tokens) const;
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
};

struct StepCostOptions {
  int32_t vocab_size = 0;
  int32_t max_drafts = 0;       // of one row
  int32_t max_rows = 0;         // slots
  int32_t max_step_tokens = 0;  // of one plan
  int64_t budget_ns = 0;        // no further step is tried once so much has passed
  const CacheLayout* layout = nullptr;
  std::vector<int32_t> pool_pages;  // per group, counting the scratch page
};

// Runs verify rows of random tokens on an executor with no step in flight, and leaves garbage in
// the cache. Takes some seconds on a slow device.
Result<StepCost> MeasureStepCost(StepExecutor& executor, const Clock& clock,
                                 const StepCostOptions& options);

}  // namespace hayate::spec
