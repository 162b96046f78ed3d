#pragma once
// A worker that fails some of its requests without ever failing enough in a row for its breaker is
// ejected for a while, unless the others fail as well: then the requests are at fault.
// Pure: time is an argument.

#include <cstdint>

namespace hayate::gateway {

class OutlierScore {
 public:
  struct Options {
    bool enabled = true;
    double max_failure_rate = 0.5;  // of its own recent requests
    double max_fleet_rate = 0.1;    // of the rest of the fleet; above it nobody is ejected
    int min_requests = 20;          // before the rate means anything
    int64_t eject_ns = 30'000'000'000;
  };

  explicit OutlierScore(const Options& options) : options_(options) {}

  void Count(bool failed);
  double failure_rate() const { return rate_; }
  bool Ejected(int64_t now_ns) const { return now_ns < ejected_until_ns_; }
  // Ejects when this worker stands out. `fleet_rate` is the mean of the others. Returns whether it
  // did.
  bool Judge(double fleet_rate, int64_t now_ns);

 private:
  static constexpr double kMemory = 1.0 / 32;  // weight of the newest request

  Options options_;
  double rate_ = 0.0;
  int requests_ = 0;  // up to min_requests
  int64_t ejected_until_ns_ = 0;
};

}  // namespace hayate::gateway
