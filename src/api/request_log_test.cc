#include "api/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hayate::api {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, TakesWhatAClientSends) {
  Rng rng(1);
  const TraceContext trace = ReadTraceContext(kParent, rng);
  EXPECT_EQ(trace.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace.parent_id, "b7ad6b7169203331");
  EXPECT_TRUE(trace.sampled);
  EXPECT_EQ(trace.span_id.size(), 16u);
  EXPECT_FALSE(
      ReadTraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", rng).sampled);
  // A later version may carry more.
  EXPECT_EQ(
      ReadTraceContext(std::string("cc") + std::string(kParent.substr(2)) + "-what", rng).parent_id,
      "b7ad6b7169203331");
}

TEST(TraceContext, BeginsANewTraceWhereTheFieldIsMalformed) {
  Rng rng(1);
  const std::string parent(kParent);
  const std::string cases[] = {
      "",
      "00",
      parent.substr(0, 54),
      parent + "-x",
      parent + "x",
      "ff" + parent.substr(2),
      "0g" + parent.substr(2),
      "00-00000000000000000000000000000000-b7ad6b7169203331-01",
      "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
      "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
      "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      std::string(55, '-'),
      std::string(4096, '0'),
  };
  for (const std::string& text : cases) {
    const TraceContext trace = ReadTraceContext(text, rng);
    EXPECT_EQ(trace.parent_id, "") << text;
    EXPECT_EQ(trace.trace_id.size(), 32u) << text;
    EXPECT_NE(trace.trace_id.find_first_not_of('0'), std::string::npos);
  }
}

class RequestLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("hayate_request_log_test_" + std::to_string(::getpid()));
    file_ = obs::LineFile::Open(path_.string()).value();
    thread_ = http::IoThread::Start({}).value();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::shared_ptr<RequestRecord> Begin(RequestLog& log, std::vector<http::Header> headers) {
    http::Request request{.method = "POST",
                          .path = "/x\"y",
                          .headers = http::HeaderView(headers),
                          .body = "12345",
                          .peer = "::1",
                          .thread = *thread_};
    return log.Begin(request, rng_);
  }
  // The only line of the file.
  std::string Line() {
    file_->Flush();
    std::ifstream in(path_);
    std::string line, more;
    EXPECT_TRUE(std::getline(in, line));
    EXPECT_FALSE(std::getline(in, more)) << more;
    return line;
  }

  std::filesystem::path path_;
  std::unique_ptr<obs::LineFile> file_;
  std::unique_ptr<http::IoThread> thread_;
  obs::Registry registry_;
  Rng rng_{7};
};

TEST_F(RequestLogTest, WritesOneLineARequest) {
  RequestLog log({.access = file_.get()}, registry_);
  const auto record = Begin(log, {{"x-request-id", "mine"}, {"traceparent", kParent}});
  record->generates = true;
  record->prompt_tokens = 7;
  record->completion_tokens = 3;
  log.End(*record, {.status = 200, .body_bytes = 99, .complete = true});
  simdjson::dom::parser parser;
  const std::string line = Line();
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(line).get(json), simdjson::SUCCESS) << line;
  EXPECT_EQ(std::string_view(json["request_id"]), "mine");
  EXPECT_EQ(std::string_view(json["trace_id"]), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(std::string_view(json["path"]), "/x\"y");
  EXPECT_EQ(int64_t(json["status"]), 200);
  EXPECT_EQ(int64_t(json["bytes_in"]), 5);
  EXPECT_EQ(int64_t(json["bytes_out"]), 99);
  EXPECT_EQ(int64_t(json["prompt_tokens"]), 7);
}

TEST_F(RequestLogTest, WritesSpansThatCollectorsRead) {
  RequestLog log({.spans = file_.get()}, registry_);
  const auto record = Begin(log, {{"traceparent", kParent}});
  record->first_token_ns = record->begin_ns + 5;
  log.End(*record, {.status = 503, .body_bytes = 0, .complete = true});
  const auto unsampled =
      Begin(log, {{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}});
  log.End(*unsampled, {.status = 200});
  simdjson::dom::parser parser;
  const std::string line = Line();
  simdjson::dom::element span;
  ASSERT_EQ(parser.parse(line).at_pointer("/resourceSpans/0/scopeSpans/0/spans/0").get(span),
            simdjson::SUCCESS)
      << line;
  EXPECT_EQ(std::string_view(span["traceId"]), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(std::string_view(span["parentSpanId"]), "b7ad6b7169203331");
  EXPECT_EQ(std::string_view(span["spanId"]), record->trace.span_id);
  EXPECT_EQ(int64_t(span["status"]["code"]), 2);
  EXPECT_EQ(std::string_view(span.at_pointer("/events/0/name")), "first token");
  EXPECT_EQ(std::string_view(span.at_pointer("/events/0/timeUnixNano")),
            std::to_string(record->begin_unix_ns + 5));
}

TEST_F(RequestLogTest, HostileIdsAreReplaced) {
  RequestLog log({}, registry_);
  for (const std::string& id : {std::string(), std::string("a b"), std::string("a\tb"),
                                std::string("\xc3\xa4"), std::string(129, 'x')}) {
    EXPECT_THAT(Begin(log, {{"x-request-id", id}})->request_id, StartsWith("req-")) << id;
  }
  EXPECT_EQ(Begin(log, {{"x-request-id", std::string(128, 'x')}})->request_id.size(), 128u);
}

TEST_F(RequestLogTest, CountsAnswersByStatus) {
  RequestLog log({}, registry_);
  const auto record = Begin(log, {});
  EXPECT_THAT(registry_.RenderText(), HasSubstr("sglang:http_requests_active 1\n"));
  log.End(*record, {.status = 0});
  log.End(*Begin(log, {}), {.status = 418});
  const std::string text = registry_.RenderText();
  EXPECT_THAT(text, HasSubstr("sglang:http_requests_active 0\n"));
  EXPECT_THAT(text, HasSubstr("sglang:http_responses_total{status_code=\"499\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sglang:http_responses_total{status_code=\"other\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sglang:http_requests_total 2\n"));
}

}  // namespace
}  // namespace hayate::api
