#include "http/detail/head.h"

#include <gtest/gtest.h>

#include <string>

namespace hayate::http {
namespace {

// The whole path: scan, then parse.
ParseError Parse(std::string_view text, RequestHead& out) {
  HeadScanner scanner;
  if (scanner.Scan(text) != HeadScanner::Outcome::kComplete) return {400, "not complete"};
  return ParseRequestHead(text.substr(0, scanner.head_bytes()), out);
}

int StatusOf(std::string_view text) {
  RequestHead head;
  return Parse(text, head).status;
}

TEST(RequestHead, SplitsTargetAndFields) {
  const std::string text =
      "POST /v1/chat?x=1&y HTTP/1.1\r\nHost: a\r\nContent-length:\t 12 \r\nX-Empty:\r\n"
      "Connection: foo , Close\r\nExpect: 100-Continue\r\n\r\nrest";
  RequestHead head;
  ASSERT_FALSE(Parse(text, head));
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/chat");
  EXPECT_EQ(head.query, "x=1&y");
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_TRUE(head.expects_continue);
  EXPECT_EQ(HeaderView(head.headers).Find("x-empty"), "");
  EXPECT_EQ(HeaderView(head.headers).Find("absent"), std::nullopt);
}

TEST(RequestHead, KeepAliveFollowsTheVersion) {
  RequestHead head;
  ASSERT_FALSE(Parse("GET / HTTP/1.0\r\n\r\n", head));
  EXPECT_FALSE(head.keep_alive);
  ASSERT_FALSE(Parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", head));
  EXPECT_TRUE(head.keep_alive);
  ASSERT_FALSE(Parse("\r\n\r\nGET http://Host:1?q HTTP/1.1\r\nHost: a\r\n\r\n", head));
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(head.path, "/");
  EXPECT_EQ(head.query, "q");
}

TEST(RequestHead, RefusesWhatTwoParsersCouldReadDifferently) {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(StatusOf(post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 1, 1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: +1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 0x1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length:\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 18446744073709551616\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: xchunked\r\n\r\n"), 501);
  EXPECT_EQ(StatusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + "A : 1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + "A: 1\r\n 2\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + "A: 1\rB: 2\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + "A: 1\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + std::string("A: \0\r\n\r\n", 8)), 400);
  EXPECT_EQ(StatusOf(get + "Host: b\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + "no colon\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + ": empty\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(get + "Expect: tea\r\n\r\n"), 417);
}

TEST(RequestHead, RefusesMalformedRequestLines) {
  const std::string fields = "\r\nHost: a\r\n\r\n";
  for (const char* line :
       {"GET", "GET /", "GET  HTTP/1.1", "/ HTTP/1.1", " / HTTP/1.1", "GET / x HTTP/1.1",
        "GET /\t HTTP/1.1", "G{T / HTTP/1.1", "GET /\xC3\xA9 HTTP/1.1", "GET x HTTP/1.1",
        "GET / http/1.1", "GET / HTTP/11"}) {
    EXPECT_EQ(StatusOf(line + fields), 400) << line;
  }
  EXPECT_EQ(StatusOf("PRI * HTTP/2.0" + fields), 505);
  EXPECT_EQ(StatusOf("OPTIONS * HTTP/1.1" + fields), 0);
}

TEST(RequestHead, BoundsTheNumberOfFields) {
  std::string text = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (size_t i = 1; i < kMaxHeaderFields; ++i) text += "A: b\r\n";
  EXPECT_EQ(StatusOf(text + "\r\n"), 0);
  EXPECT_EQ(StatusOf(text + "A: b\r\n\r\n"), 431);
}

TEST(HeadScanner, FindsTheSameEndHoweverTheBytesArrive) {
  const std::string text = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n";
  for (size_t step = 1; step < text.size(); ++step) {
    HeadScanner scanner;
    size_t fed = 0;
    auto outcome = HeadScanner::Outcome::kNeedMore;
    while (outcome == HeadScanner::Outcome::kNeedMore && fed < text.size()) {
      fed = std::min(text.size(), fed + step);
      outcome = scanner.Scan(std::string_view(text).substr(0, fed));
    }
    EXPECT_EQ(outcome, HeadScanner::Outcome::kComplete);
    EXPECT_EQ(scanner.head_bytes(), text.size() - 8);
  }
  HeadScanner scanner;
  EXPECT_EQ(scanner.Scan("GET / HTTP/1.1\n"), HeadScanner::Outcome::kMalformed);
}

TEST(ResponseHead, DecidesHowTheBodyEnds) {
  const auto parse = [](std::string_view text, std::string_view method) {
    ResponseHead head;
    EXPECT_FALSE(ParseResponseHead(text, method, head)) << text;
    return head;
  };
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET").content_length, 3u);
  EXPECT_EQ(parse("HTTP/1.1 200\r\nContent-Length: 3\r\n\r\n", "HEAD").framing, BodyFraming::kNone);
  EXPECT_EQ(parse("HTTP/1.1 204 \r\n\r\n", "GET").framing, BodyFraming::kNone);
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\n\r\n", "GET").framing, BodyFraming::kUntilClose);
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\n\r\n", "GET").keep_alive);
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", "GET").framing,
            BodyFraming::kChunked);
  ResponseHead head;
  for (const char* text : {"HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
                           "HTTP/1.1 2000\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
                           "X\r\n\r\n", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    EXPECT_EQ(ParseResponseHead(text, "GET", head).status, 502) << text;
  }
}

}  // namespace
}  // namespace hayate::http
