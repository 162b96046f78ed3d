#include "obs/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace hayate::obs {
namespace {

void Fill(const Counter& counter, prometheus::ClientMetric& out) {
  out.counter.value = static_cast<double>(counter.value());
}

void Fill(const Gauge& gauge, prometheus::ClientMetric& out) { out.gauge.value = gauge.value(); }

// The total is the sum of the buckets read here, so that the text agrees with itself.
void Fill(const Histogram& histogram, prometheus::ClientMetric& out) {
  uint64_t cumulative = 0;
  const auto& bounds = histogram.bounds();
  for (size_t i = 0; i <= bounds.size(); ++i) {
    cumulative += histogram.bucket_count(i);
    const double edge = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    out.histogram.bucket.push_back({cumulative, edge});
  }
  out.histogram.sample_count = cumulative;
  out.histogram.sample_sum = histogram.sum();
}

template <typename Metric>
struct Labelled {
  Labelled(Labels metric_labels, auto&&... args)
      : labels(std::move(metric_labels)), metric(std::forward<decltype(args)>(args)...) {}
  Labels labels;
  Metric metric;
};

template <typename Metric>
using Series = std::vector<std::unique_ptr<Labelled<Metric>>>;

template <typename Metric>
Metric& AddTo(Series<Metric>& series, Labels labels, auto&&... args) {
  for (const auto& item : series) CHECK(item->labels != labels) << "metric registered twice";
  series.push_back(
      std::make_unique<Labelled<Metric>>(std::move(labels), std::forward<decltype(args)>(args)...));
  return series.back()->metric;
}

template <typename Metric>
void Collect(const Series<Metric>& series, prometheus::MetricFamily& out) {
  for (const auto& item : series) {
    prometheus::ClientMetric& metric = out.metric.emplace_back();
    for (const auto& [name, value] : item->labels) metric.label.push_back({name, value});
    Fill(item->metric, metric);
  }
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {
  for (size_t i = 1; i < bounds_.size(); ++i) CHECK_LT(bounds_[i - 1], bounds_[i]);
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) total += bucket_count(i);
  return total;
}

// Only the series of its own kind is ever filled.
struct Registry::Family {
  std::string name;
  std::string help;
  Kind kind;
  Series<Counter> counters;
  Series<Gauge> gauges;
  Series<Histogram> histograms;
};

Registry::Registry() = default;
Registry::~Registry() = default;

Registry::Family& Registry::FamilyFor(const std::lock_guard<std::mutex>&, const MetricInfo& info,
                                      Kind kind) {
  for (const auto& family : families_) {
    if (family->name != info.name) continue;
    CHECK(family->kind == kind) << info.name << " is registered as another kind";
    return *family;
  }
  CHECK(prometheus::CheckMetricName(info.name)) << info.name;
  families_.push_back(std::make_unique<Family>());
  Family& family = *families_.back();
  family.name = info.name;
  family.help = info.help;
  family.kind = kind;
  return family;
}

Counter& Registry::AddCounter(MetricInfo info) {
  std::lock_guard lock(mutex_);
  Family& family = FamilyFor(lock, info, Kind::kCounter);
  return AddTo(family.counters, std::move(info.labels));
}

Gauge& Registry::AddGauge(MetricInfo info) {
  std::lock_guard lock(mutex_);
  Family& family = FamilyFor(lock, info, Kind::kGauge);
  return AddTo(family.gauges, std::move(info.labels));
}

Histogram& Registry::AddHistogram(MetricInfo info, std::vector<double> bounds) {
  std::lock_guard lock(mutex_);
  Family& family = FamilyFor(lock, info, Kind::kHistogram);
  return AddTo(family.histograms, std::move(info.labels), std::move(bounds));
}

std::string Registry::RenderText() const {
  std::vector<prometheus::MetricFamily> snapshot;
  {
    std::lock_guard lock(mutex_);
    for (const auto& family : families_) {
      auto& out = snapshot.emplace_back();
      out.name = family->name;
      out.help = family->help;
      switch (family->kind) {
        case Kind::kCounter:
          out.type = prometheus::MetricType::Counter;
          Collect(family->counters, out);
          break;
        case Kind::kGauge:
          out.type = prometheus::MetricType::Gauge;
          Collect(family->gauges, out);
          break;
        case Kind::kHistogram:
          out.type = prometheus::MetricType::Histogram;
          Collect(family->histograms, out);
          break;
      }
    }
  }
  return prometheus::TextSerializer().Serialize(snapshot);
}

std::vector<double> ExponentialBounds(double first, double factor, int count) {
  std::vector<double> bounds;
  double edge = first;
  for (int i = 0; i < count; ++i, edge *= factor) bounds.push_back(edge);
  return bounds;
}

}  // namespace hayate::obs
