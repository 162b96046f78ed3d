#pragma once
// Counters, gauges and histograms, exposed as Prometheus text. Metrics are registered at start-up
// and updated through the references handed out then: an update is one relaxed atomic operation,
// with no lock and no look-up, so that the step loop can count everything always.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace hayate::obs {

// All values below are lone numbers that publish nothing else, hence relaxed. Each sits on its own
// cache line: threads that count different things do not slow each other down.

// Only grows. Any thread.
class alignas(64) Counter {
 public:
  void Add(uint64_t amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void Increment() { Add(1); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// A level. Any thread.
class alignas(64) Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double delta) { value_.fetch_add(delta, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// A distribution over fixed buckets. Any thread. A reader beside a writer may see a value in a
// bucket before it is in the sum.
class alignas(64) Histogram {
 public:
  // `bounds` are the inclusive upper edges, strictly increasing; a bucket up to +Inf follows them.
  explicit Histogram(std::vector<double> bounds);

  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Values in bucket `index` alone (not cumulative); index == bounds().size() is the one up to
  // +Inf.
  uint64_t bucket_count(size_t index) const {
    return counts_[index].load(std::memory_order_relaxed);
  }
  uint64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // [bounds_.size() + 1]
  std::atomic<double> sum_{0};
};

// Label names and values, e.g. {{"model_name", "default"}}.
using Labels = std::map<std::string, std::string>;

struct MetricInfo {
  std::string name;  // Prometheus metric name; ':' is allowed
  std::string help;
  Labels labels;
};

// Owns the metrics. The references it returns live as long as the registry. Registering is for
// start-up: it takes a lock, and a name of the wrong form, one name with two kinds, or the same
// name and labels twice is a programming error.
class Registry {
 public:
  Registry();
  ~Registry();

  Counter& AddCounter(MetricInfo info);
  Gauge& AddGauge(MetricInfo info);
  Histogram& AddHistogram(MetricInfo info, std::vector<double> bounds);

  // Prometheus text format 0.0.4. Any thread; may run beside updates.
  std::string RenderText() const;
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  enum class Kind { kCounter, kGauge, kHistogram };
  struct Family;
  Family& FamilyFor(const std::lock_guard<std::mutex>&, const MetricInfo& info, Kind kind);

  mutable std::mutex mutex_;                       // guards the list of families, not the values
  std::vector<std::unique_ptr<Family>> families_;  // in order of registration
};

// `count` bounds: first, first·factor, first·factor², …
std::vector<double> ExponentialBounds(double first, double factor, int count);

}  // namespace hayate::obs
