#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "obs/line_file.h"
#include "obs/metrics.h"
#include "obs/step_log.h"

namespace hayate::obs {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, RenderAsPrometheusText) {
  Registry registry;
  Counter& ok = registry.AddCounter({"app:requests_total", "Requests.", {{"code", "200"}}});
  Counter& bad = registry.AddCounter({"app:requests_total", "Requests.", {{"code", "4\"0\n0"}}});
  Gauge& running = registry.AddGauge({"app:running", "Running now.", {}});
  ok.Add(3);
  bad.Increment();
  running.Set(2.5);
  running.Add(-1);
  const std::string text = registry.RenderText();
  EXPECT_THAT(text, HasSubstr("# TYPE app:requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr("app:requests_total{code=\"200\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("app:requests_total{code=\"4\\\"0\\n0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE app:running gauge\napp:running 1.5\n"));
}

TEST(Metrics, HistogramEdgesAreInclusiveAndBucketsCumulative) {
  Registry registry;
  Histogram& latency = registry.AddHistogram({"latency_seconds", "Latency.", {}}, {0.5, 1, 2});
  for (double value : {0.5, 0.75, 1.0, 2.0, 99.0}) latency.Observe(value);
  EXPECT_EQ(latency.bucket_count(0), 1u);
  EXPECT_EQ(latency.bucket_count(1), 2u);
  EXPECT_EQ(latency.bucket_count(3), 1u);
  EXPECT_EQ(latency.count(), 5u);
  const std::string text = registry.RenderText();
  EXPECT_THAT(text, HasSubstr("latency_seconds_bucket{le=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_bucket{le=\"+Inf\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_count 5\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_sum 103.25\n"));
}

TEST(Metrics, UpdatesOfManyThreadsAddUp) {
  Registry registry;
  Counter& counter = registry.AddCounter({"c", "", {}});
  Histogram& histogram = registry.AddHistogram({"h", "", {}}, ExponentialBounds(1, 2, 4));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        counter.Increment();
        histogram.Observe(i % 10);
      }
    });
  }
  while (counter.value() < 2000) registry.RenderText();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 4000u);
  EXPECT_EQ(histogram.count(), 4000u);
  EXPECT_EQ(histogram.sum(), 4 * 100 * 45.0);
}

TEST(MetricsDeathTest, OneNameCannotHaveTwoKinds) {
  Registry registry;
  registry.AddCounter({"x", "", {}});
  EXPECT_DEATH(registry.AddGauge({"x", "", {}}), "another kind");
  EXPECT_DEATH(registry.AddCounter({"x", "", {}}), "twice");
  EXPECT_DEATH(registry.AddCounter({"1 x", "", {}}), "1 x");
}

TEST(StepLog, KeepsTheNewestRecordsInOrder) {
  StepLog log(4);
  EXPECT_TRUE(log.Snapshot(10).empty());
  for (int i = 0; i < 6; ++i) log.Append({.num_rows = 10 * i});
  const auto records = log.Snapshot(10);
  ASSERT_EQ(records.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].step, 2 + i);
    EXPECT_EQ(records[i].num_rows, 10 * (2 + i));
  }
  EXPECT_EQ(log.Snapshot(2).front().step, 4);
}

TEST(StepLog, ReadersBesideTheWriterNeverSeeATornRecord) {
  StepLog log(8);
  std::atomic<int> snapshots{0};
  std::thread reader([&] {
    for (; snapshots < 2000; ++snapshots) {
      int64_t previous = -1;
      for (const StepRecord& record : log.Snapshot(8)) {
        ASSERT_GT(record.step, previous);
        ASSERT_EQ(record.start_ns, record.step);
        ASSERT_EQ(record.num_pages_cached, static_cast<int32_t>(record.step));
        previous = record.step;
      }
    }
  });
  int32_t appended = 0;
  for (; snapshots < 2000; ++appended) {
    log.Append({.start_ns = appended, .num_pages_cached = appended});
  }
  reader.join();
  EXPECT_EQ(log.num_steps(), appended);
}

TEST(LineFile, KeepsLinesOfManyThreadsWhole) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("hayate_line_file_test_" + std::to_string(::getpid()));
  {
    auto file = LineFile::Open(path.string());
    ASSERT_TRUE(file.ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) (*file)->Add(std::string(40, static_cast<char>('a' + t)));
      });
    }
    for (int i = 0; i < 10; ++i) (*file)->Flush();
    for (auto& thread : threads) thread.join();
  }
  std::ifstream in(path);
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    EXPECT_EQ(line, std::string(40, line[0]));
  }
  EXPECT_EQ(count, 2000);
  std::filesystem::remove(path);
}

TEST(LineFile, DropsWhatNobodyFlushesAndNamesFilesThatCannotBeOpened) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("hayate_line_file_test_" + std::to_string(::getpid()));
  const std::string line(1 << 20, 'x');
  {
    auto file = LineFile::Open(path.string());
    ASSERT_TRUE(file.ok());
    for (int i = 0; i < 10; ++i) (*file)->Add(line);
  }
  EXPECT_EQ(std::filesystem::file_size(path), 3 * (line.size() + 1));
  std::filesystem::remove(path);
  EXPECT_THAT(LineFile::Open("/no/such/folder/x").status().message(), HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace hayate::obs
