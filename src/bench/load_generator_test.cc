#include "bench/load_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "http/server.h"
#include "http/sse.h"

namespace hayate::bench {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::unique_ptr<http::Server> StartServer(http::Handler handler) {
  auto server = http::Server::Create({});
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_TRUE((*server)->Start(std::move(handler)).ok());
  return std::move(*server);
}

constexpr int kAnswerTokens = 4;

std::string TextEvent() {
  std::string out;
  http::AppendSseEvent(out, R"({"choices":[{"index":0,"text":"x","finish_reason":null}]})");
  return out;
}

// The usage says one token more than there are events with text: one had no text of its own.
std::string EndEvents() {
  std::string out;
  http::AppendSseEvent(out, R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
  http::AppendSseEvent(out, R"({"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4}})");
  return out + std::string(http::kSseDone);
}

void AnswerCompletion(http::Request&, http::ResponseWriter writer) {
  writer.BeginStream({.content_type = http::kSseContentType});
  for (int i = 0; i + 1 < kAnswerTokens; ++i) writer.Write(TextEvent());
  writer.Write(EndEvents());
  writer.End();
}

std::vector<PlannedRequest> Workload(int count) {
  return MakeRandomWorkload({.num_prompts = count,
                             .input_tokens = 10,
                             .output_tokens = kAnswerTokens,
                             .vocab_size = 100});
}

LoadResult LoadServer(const http::Server& server, int count, LoadOptions options = {},
                      double rate = std::numeric_limits<double>::infinity()) {
  options.endpoint = {"127.0.0.1", server.port()};
  options.dialect.model = "m";
  auto result = RunLoad(options, Workload(count), ArrivalTimes(count, rate, 1));
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return std::move(*result);
}

TEST(LoadGenerator, TimesEveryStreamOfAClosedLoop) {
  auto server = StartServer(AnswerCompletion);
  LoadOptions options;
  options.max_concurrency = 8;
  const LoadResult result = LoadServer(*server, 200, options);
  EXPECT_EQ(result.records.size(), 200u);
  EXPECT_LE(result.max_in_flight, 8);
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.error, "");
    EXPECT_EQ(record.input_tokens, 10);
    EXPECT_EQ(record.output_tokens, kAnswerTokens);
    EXPECT_EQ(record.itl_s.size(), size_t{kAnswerTokens - 2});
    EXPECT_GT(record.ttft_s, 0.0);
    EXPECT_LE(record.ttft_s, record.e2e_s);
    EXPECT_LE(record.e2e_s, result.duration_s);
  }
}

TEST(LoadGenerator, NeverExceedsTheLimitAndReachesIt) {
  // Answers wait until as many requests are there as may be.
  constexpr size_t kLimit = 5;
  std::vector<http::ResponseWriter> held;  // of the server's one thread
  size_t most_held = 0;
  int num_left = 20;
  auto server = StartServer([&](http::Request& request, http::ResponseWriter writer) {
    held.push_back(std::move(writer));
    --num_left;
    most_held = std::max(most_held, held.size());
    if (held.size() < kLimit && num_left > 0) return;
    for (auto& each : held) AnswerCompletion(request, std::move(each));
    held.clear();
  });
  LoadOptions options;
  options.max_concurrency = kLimit;
  const LoadResult result = LoadServer(*server, 20, options);
  EXPECT_EQ(SummarizeLoad(result).completed, 20);
  EXPECT_EQ(most_held, kLimit);
  EXPECT_EQ(result.max_in_flight, static_cast<int32_t>(kLimit));
  (void)server->Shutdown(milliseconds(0));
}

TEST(LoadGenerator, KeepsToTheArrivalTimes) {
  auto server = StartServer(AnswerCompletion);
  constexpr double kRate = 500.0;
  const LoadResult result = LoadServer(*server, 50, {}, kRate);
  EXPECT_EQ(SummarizeLoad(result).completed, 50);
  EXPECT_GE(result.duration_s, ArrivalTimes(50, kRate, 1).back());
}

TEST(LoadGenerator, CountsWhatTheServerRefusesBreaksOrGarbles) {
  int next = 0;
  auto server = StartServer([&](http::Request& request, http::ResponseWriter writer) {
    switch (next++ % 5) {
      case 0:
        return writer.Send({.status = 429}, R"({"error":{"message":"queue full"}})");
      case 1: {  // cut in the middle: destroyed without End()
        writer.BeginStream({});
        writer.Write(TextEvent());
        return;
      }
      case 2:
        writer.BeginStream({});
        writer.Write("data: {\"error\":{\"message\":\"device lost\"}}\n\n");
        return writer.End();
      case 3:
        writer.BeginStream({});
        writer.Write("data: not json\n\n");
        return writer.End();
      default:
        return AnswerCompletion(request, std::move(writer));
    }
  });
  LoadOptions options;
  options.max_concurrency = 1;
  const LoadResult result = LoadServer(*server, 10, options);
  const LoadSummary summary = SummarizeLoad(result);
  EXPECT_EQ(summary.completed, 2);
  EXPECT_EQ(summary.errors.size(), 4u);
  EXPECT_THAT(result.records[0].error, HasSubstr("HTTP 429"));
  EXPECT_THAT(result.records[0].error, HasSubstr("queue full"));
  EXPECT_FALSE(result.records[1].error.empty());
  EXPECT_EQ(result.records[2].error, "device lost");
  EXPECT_THAT(result.records[3].error, HasSubstr("not json"));
}

TEST(LoadGenerator, AStreamWithoutAFinishIsNoAnswer) {
  auto server = StartServer([](http::Request&, http::ResponseWriter writer) {
    writer.BeginStream({});
    writer.Write(TextEvent());
    writer.End();
  });
  EXPECT_THAT(LoadServer(*server, 1).records[0].error, HasSubstr("without a finish"));
}

TEST(LoadGenerator, GivesUpOnASilentServerAtTheTimeout) {
  std::vector<http::ResponseWriter> held;
  std::atomic<int> num_held = 0;
  auto server = StartServer([&](http::Request&, http::ResponseWriter writer) {
    // One says nothing, the other begins and stops.
    if (num_held.fetch_add(1) == 1) {
      writer.BeginStream({});
      writer.Write(TextEvent());
    }
    held.push_back(std::move(writer));
  });
  LoadOptions options;
  options.request_timeout = milliseconds(50);
  const LoadSummary summary = SummarizeLoad(LoadServer(*server, 2, options));
  EXPECT_EQ(summary.completed, 0);
  EXPECT_EQ(summary.num_requests, 2);
  (void)server->Shutdown(milliseconds(0));
}

TEST(LoadGenerator, ADeadServerFailsEveryRequest) {
  uint16_t port = 0;
  {
    auto server = StartServer(AnswerCompletion);
    port = server->port();
  }
  LoadOptions options;
  options.endpoint = {"127.0.0.1", port};
  auto result = RunLoad(options, Workload(3), std::vector<double>(3, 0.0));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(SummarizeLoad(*result).errors.front().second, 3);
  options.endpoint.host = "no-such-host.invalid";
  EXPECT_FALSE(RunLoad(options, Workload(1), std::vector<double>(1, 0.0)).ok());
}

TEST(LoadGenerator, SharesAGapAmongTheTokensOfOneEvent) {
  auto server = StartServer([](http::Request& request, http::ResponseWriter writer) {
    EXPECT_EQ(request.path, "/generate");
    writer.BeginStream({.content_type = http::kSseContentType});
    for (const char* data :
         {R"({"text":"a","meta_info":{"prompt_tokens":10,"completion_tokens":1}})",
          R"({"text":"abcd","meta_info":{"prompt_tokens":10,"completion_tokens":4,
              "finish_reason":{"type":"length"}}})"}) {
      std::string out;
      http::AppendSseEvent(out, data);
      writer.Write(out);
    }
    writer.End();
  });
  LoadOptions options;
  options.dialect.dialect = StreamDialect::kGenerate;
  const RequestRecord record = LoadServer(*server, 1, options).records[0];
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.output_tokens, 4);
  ASSERT_EQ(record.itl_s.size(), 3u);
  EXPECT_EQ(record.itl_s[0], record.itl_s[2]);
}

TEST(LoadGenerator, AnEmptyWorkloadIsDoneAtOnce) {
  EXPECT_EQ(RunLoad({}, {}, {})->records.size(), 0u);
}

}  // namespace
}  // namespace hayate::bench
