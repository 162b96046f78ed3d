#include "bench/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <limits>

namespace hayate::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two complete requests of 0.5 s and 1 s, one failed, in 2 s.
LoadResult ThreeRequests() {
  LoadResult result;
  result.duration_s = 2.0;
  result.max_in_flight = 2;
  result.records = {
      {.wanted_output_tokens = 5,
       .input_tokens = 100,
       .output_tokens = 5,
       .cached_tokens = 64,
       .ttft_s = 0.1,
       .e2e_s = 0.5,
       .itl_s = {0.1, 0.1, 0.1, 0.1}},
      {.error = "HTTP 429: \"full\"", .wanted_output_tokens = 5, .e2e_s = 0.25},
      {.wanted_output_tokens = 5,
       .input_tokens = 200,
       .output_tokens = 1,
       .ttft_s = 1.0,
       .e2e_s = 1.0},
  };
  return result;
}

TEST(LoadSummary, CountsCompletedRequestsOnly) {
  const LoadSummary summary = SummarizeLoad(ThreeRequests());
  EXPECT_EQ(summary.num_requests, 3);
  EXPECT_EQ(summary.completed, 2);
  EXPECT_EQ(summary.num_wrong_length, 1);
  EXPECT_EQ(summary.total_input_tokens, 300);
  EXPECT_EQ(summary.total_output_tokens, 6);
  EXPECT_EQ(summary.total_cached_tokens, 64);
  EXPECT_DOUBLE_EQ(summary.request_throughput, 1.0);
  EXPECT_DOUBLE_EQ(summary.output_throughput, 3.0);
  EXPECT_DOUBLE_EQ(summary.total_token_throughput, 153.0);
  EXPECT_DOUBLE_EQ(summary.concurrency, 0.875);
  EXPECT_DOUBLE_EQ(summary.ttft_ms.mean, 550.0);
  // An answer of one token has no time per later token.
  EXPECT_EQ(summary.tpot_ms.count, 1u);
  EXPECT_DOUBLE_EQ(summary.tpot_ms.mean, 100.0);
  EXPECT_EQ(summary.itl_ms.count, 4u);
  ASSERT_EQ(summary.errors.size(), 1u);
  EXPECT_EQ(summary.errors[0].second, 1);
}

TEST(LoadSummary, PutsTheMostFrequentErrorFirst) {
  LoadResult result;
  for (const char* error : {"a", "b", "b", "c"}) result.records.push_back({.error = error});
  const LoadSummary summary = SummarizeLoad(result);
  ASSERT_EQ(summary.errors.size(), 3u);
  EXPECT_EQ(summary.errors[0], (std::pair<std::string, int32_t>{"b", 2}));
  EXPECT_EQ(summary.output_throughput, 0.0);  // and not NaN: nothing took any time
}

TEST(LoadReport, WritesTheFieldsThatPlotsRead) {
  const LoadResult result = ThreeRequests();
  const LoadSettings settings{.date = "20261130-000000",
                              .backend = "openai",
                              .base_url = "http://h:1",
                              .model = "m",
                              .dataset = "random",
                              .request_rate = std::numeric_limits<double>::infinity(),
                              .max_concurrency = 4};
  const std::string line = ToJson(settings, SummarizeLoad(result), result, JsonDetail::kPerRequest);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  ASSERT_EQ(parser.parse(line).get(root), simdjson::SUCCESS) << line;
  for (const char* name : {"date",
                           "backend",
                           "model_id",
                           "tokenizer_id",
                           "num_prompts",
                           "request_rate",
                           "burstiness",
                           "max_concurrency",
                           "duration",
                           "completed",
                           "total_input_tokens",
                           "total_output_tokens",
                           "request_throughput",
                           "output_throughput",
                           "total_token_throughput",
                           "mean_ttft_ms",
                           "median_tpot_ms",
                           "std_itl_ms",
                           "p99_e2el_ms",
                           "input_lens",
                           "output_lens",
                           "ttfts",
                           "itls",
                           "errors"}) {
    EXPECT_EQ(root[name].error(), simdjson::SUCCESS) << name;
  }
  EXPECT_EQ(root["request_rate"].get_string().value(), "inf");
  EXPECT_EQ(root["errors"].at(1).get_string().value(), "HTTP 429: \"full\"");
  EXPECT_DOUBLE_EQ(root["itls"].at(0).at(3).get_double().value(), 0.1);
  EXPECT_THAT(ToJson(settings, SummarizeLoad(result), result, JsonDetail::kSummary),
              Not(HasSubstr("itls")));
}

TEST(LoadReport, TableNamesErrorsAndUnaskedLengths) {
  const std::string table = RenderTable({.request_rate = 2.5}, SummarizeLoad(ThreeRequests()));
  EXPECT_THAT(table, HasSubstr("2 of 3"));
  EXPECT_THAT(table, HasSubstr("1 x HTTP 429: \"full\""));
  EXPECT_THAT(table, HasSubstr("with an unasked length"));
  EXPECT_THAT(table, HasSubstr("2.5"));
}

}  // namespace
}  // namespace hayate::bench
