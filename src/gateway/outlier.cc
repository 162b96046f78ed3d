#include "gateway/outlier.h"

#include <algorithm>

namespace hayate::gateway {

void OutlierScore::Count(bool failed) {
  rate_ += ((failed ? 1.0 : 0.0) - rate_) * kMemory;
  requests_ = std::min(requests_ + 1, options_.min_requests);
}

bool OutlierScore::Judge(double fleet_rate, int64_t now_ns) {
  if (!options_.enabled || requests_ < options_.min_requests || Ejected(now_ns)) return false;
  if (rate_ <= options_.max_failure_rate || fleet_rate > options_.max_fleet_rate) return false;
  ejected_until_ns_ = now_ns + options_.eject_ns;
  rate_ = 0.0;
  requests_ = 0;
  return true;
}

}  // namespace hayate::gateway
