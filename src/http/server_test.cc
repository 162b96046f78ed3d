// What goes over the wire: framing, order, limits, malformed requests.

#include <gmock/gmock.h>

#include <string>
#include <thread>

#include "http/detail/server_fixture.h"

namespace hayate::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ServerTest, KeepsTheConnectionBetweenRequests) {
  StartServer();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.Send(Post("body " + std::to_string(i)));
    const std::string response = client.ReadResponse();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
    EXPECT_THAT(response, HasSubstr("X-Method: POST\r\n"));
    EXPECT_THAT(response, EndsWith("body " + std::to_string(i)));
  }
}

TEST_F(ServerTest, ClosesWhenTheClientAsks) {
  StartServer();
  RawClient client(port());
  client.Send("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.closed());
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  StartServer();
  RawClient client(port());
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += Post(std::to_string(i));
  client.Send(requests);
  for (int i = 0; i < 200; ++i) {
    ASSERT_THAT(client.ReadResponse(), EndsWith("\r\n\r\n" + std::to_string(i)));
  }
}

TEST_F(ServerTest, PipelinedRequestWaitsForTheAnswerBeforeIt) {
  StartServer();
  RawClient client(port());
  client.Send(std::string(kGetHold) + Post("second"));
  ASSERT_TRUE(handled_.WaitFor(1));
  OnHeld([](ResponseWriter& writer) { writer.Send({}, "first"); });
  EXPECT_THAT(client.ReadResponse(), EndsWith("first"));
  EXPECT_THAT(client.ReadResponse(), EndsWith("second"));
}

TEST_F(ServerTest, StreamsInChunksAndKeepsTheConnection) {
  StartServer();
  RawClient client(port());
  for (int i = 0; i < 2; ++i) {
    client.Send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_THAT(
        client.ReadUntil("0\r\n\r\n"),
        EndsWith("Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n"
                 "9\r\ndata: 2\n\n\r\n0\r\n\r\n"));
  }
}

TEST_F(ServerTest, StreamsToHttp10UpToTheClose) {
  StartServer();
  RawClient client(port());
  client.Send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), EndsWith("\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n"));
  RawClient kept(port());
  kept.Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(kept.ReadResponse(), HasSubstr("Connection: keep-alive\r\n"));
}

TEST_F(ServerTest, HeadHasTheLengthButNoBody) {
  StartServer();
  RawClient client(port());
  client.Send("HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Content-Length: 3\r\n"));
  client.Send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  client.Send("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 204 No Content\r\n"));
  client.Send(kGetEcho);
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(ServerTest, ReadsChunkedAndLargeBodies) {
  StartServer();
  RawClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.Send("4;x=y\r\ndefg\r\n0\r\nTrailer: 1\r\n\r\n");
  EXPECT_THAT(client.ReadResponse(), EndsWith("\r\n\r\nabcdefg"));

  std::string large(1 << 20, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>('a' + i % 26);
  std::thread sender([&] { client.Send(Post(large)); });
  const std::string response = client.ReadResponse();
  sender.join();
  EXPECT_EQ(response.substr(response.find("\r\n\r\n") + 4), large);
}

TEST_F(ServerTest, InvitesTheBodyOfAClientThatAsks) {
  StartServer();
  RawClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_THAT(client.ReadResponse(), EndsWith("ok"));
}

TEST_F(ServerTest, HeaderValuesCannotInjectLines) {
  StartServer();
  RawClient client(port());
  client.Send("GET /inject HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadResponse(), HasSubstr("X-Id: a  Evil: yes\r\n"));
}

TEST_F(ServerTest, RefusesMalformedRequestsAndCloses) {
  StartServer();
  for (const char* text : {
           "GET / HTTP/1.1\nHost: a\n\n",
           "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\n folded\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: "
           "chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
           "\x16\x03\x01\x02\x01\n",
       }) {
    RawClient client(port());
    client.Send(text);
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 400 Bad Request\r\n")) << text;
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(handled_.count(), 0);
}

TEST_F(ServerTest, EnforcesHeaderAndBodyLimits) {
  ServerOptions options;
  options.max_header_bytes = 1000;
  options.max_body_bytes = 5000;
  options.render_error = [](int status, std::string_view reason) {
    return ServerOptions::ErrorBody{
        "application/json",
        "{\"code\":" + std::to_string(status) + ",\"m\":\"" + std::string(reason) + "\"}"};
  };
  StartServer(std::move(options));
  {
    RawClient client(port());
    client.Send("GET / HTTP/1.1\r\nHost: a\r\nA: " + std::string(2000, 'a'));
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 431 "));
  }
  {
    RawClient client(port());
    client.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5001\r\n\r\n" +
                std::string(5001, 'b'));
    EXPECT_THAT(client.ReadAll(), EndsWith("{\"code\":413,\"m\":\"request body too large\"}"));
  }
  {
    RawClient client(port());
    client.Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" +
                std::string(100'000, 'c'));
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 413 "));
  }
  RawClient fits(port());
  fits.Send(Post(std::string(5000, 'd')));
  EXPECT_THAT(fits.ReadResponse(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ServerTest, RefusesConnectionsOverTheLimitWith503) {
  ServerOptions options;
  options.max_connections = 2;
  StartServer(std::move(options));
  RawClient first(port());
  auto second = std::make_unique<RawClient>(port());
  for (RawClient* client : {&first, second.get()}) {
    client->Send(kGetEcho);
    client->ReadResponse();
  }
  RawClient third(port());
  third.Send(kGetEcho);
  EXPECT_THAT(third.ReadAll(), StartsWith("HTTP/1.1 503 "));
  second.reset();
  // The place is free once the server has seen the close.
  std::string response;
  for (int i = 0; i < 1000 && !response.starts_with("HTTP/1.1 200 "); ++i) {
    RawClient again(port());
    again.Send(kGetEcho);
    response = again.ReadResponse();
  }
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace hayate::http
