#include "http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "http/detail/socket.h"
#include "http/event_loop.h"
#include "http/server.h"
#include "http/sse.h"

namespace hayate::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::unique_ptr<Server> StartServer(ServerOptions options, Handler handler) {
  auto server = Server::Create(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_TRUE((*server)->Start(std::move(handler)).ok());
  return std::move(*server);
}

void Echo(Request& request, ResponseWriter writer) {
  if (request.path == "/stream") {
    writer.BeginStream({.content_type = kSseContentType});
    std::string out;
    for (int i = 0; i < 50; ++i) {
      out.clear();
      AppendSseEvent(out, std::to_string(i));
      writer.Write(out);
    }
    return writer.End();
  }
  writer.Send({.status = request.path == "/missing" ? 404 : 200}, request.body);
}

// Accepts one connection, waits for a request, and answers with exactly `bytes`, then closes.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::string bytes)
      : listener_(std::move(*Socket::Bind({"127.0.0.1", 0}))) {
    EXPECT_TRUE(listener_.Listen(8).ok());
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      Socket peer;
      Wait(listener_.fd(), POLLIN);
      if (listener_.Accept(peer).kind != IoResult::Kind::kOk) return;
      char buffer[4096];
      Wait(peer.fd(), POLLIN);
      (void)peer.Read(buffer);
      std::string_view rest = bytes;
      while (!rest.empty()) {
        const IoResult result = peer.Write(rest);
        if (result.kind == IoResult::Kind::kError) break;
        rest.remove_prefix(result.num_bytes);
        Wait(peer.fd(), POLLOUT);
      }
      peer.ShutdownWrite();
      Wait(peer.fd(), POLLIN);
    });
  }
  ~ScriptedServer() { thread_.join(); }
  Endpoint endpoint() const { return {"127.0.0.1", listener_.LocalPort()}; }

 private:
  static void Wait(int fd, short events) {
    pollfd wait{fd, events, 0};
    poll(&wait, 1, 20'000);
  }
  Socket listener_;
  std::thread thread_;
};

Result<BlockingClient::Response> FetchFrom(const Endpoint& endpoint) {
  auto client = BlockingClient::Create(endpoint, {});
  return client->Fetch({}, 1 << 20);
}

TEST(BlockingClient, KeepsTheConnectionBetweenRequests) {
  auto server = StartServer({}, Echo);
  auto client = BlockingClient::Create({"localhost", server->port()}, {});
  ASSERT_TRUE(client.ok());
  for (int i = 0; i < 3; ++i) {
    auto response =
        client->Fetch({.method = "POST", .target = "/", .body = std::to_string(i)}, 100);
    ASSERT_TRUE(response.ok()) << response.status().ToString();
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, std::to_string(i));
  }
  EXPECT_EQ(client->Fetch({.target = "/missing"}, 100)->status, 404);
  EXPECT_EQ(client->Fetch({.method = "HEAD"}, 100)->status, 200);
  EXPECT_EQ(server->num_connections(), 1);
  const std::string large(3 << 20, 'z');
  EXPECT_EQ(client->Fetch({.method = "POST", .body = large}, large.size())->body, large);
  EXPECT_EQ(client->Fetch({.method = "POST", .body = large}, 1000).status().code(),
            ErrorCode::kPayloadTooLarge);
}

TEST(BlockingClient, ReadsAStreamOfEvents) {
  auto server = StartServer({}, Echo);
  auto client = BlockingClient::Create({"127.0.0.1", server->port()}, {});
  SseParser parser(1000);
  int next = 0;
  auto response = client->FetchStream({.target = "/stream"}, [&](int, std::string_view bytes) {
    parser.Feed(bytes);
    SseEvent event;
    while (parser.Next(event) == SseParser::Outcome::kEvent) {
      EXPECT_EQ(event.data, std::to_string(next++));
    }
    return true;
  });
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(next, 50);
  auto stopped =
      client->FetchStream({.target = "/stream"}, [](int, std::string_view) { return false; });
  EXPECT_EQ(stopped.status().code(), ErrorCode::kCancelled);
  EXPECT_TRUE(client->Fetch({}, 10).ok());
}

TEST(BlockingClient, OpensANewConnectionWhenTheIdleOneWasClosed) {
  ServerOptions options;
  options.idle_timeout = milliseconds(10);
  auto server = StartServer(std::move(options), Echo);
  auto client = BlockingClient::Create({"127.0.0.1", server->port()}, {});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client->Fetch({}, 10).ok());
    while (server->num_connections() > 0) std::this_thread::yield();
  }
}

TEST(BlockingClient, NamesWhatWentWrong) {
  uint16_t dead_port = 0;
  { dead_port = Socket::Bind({"127.0.0.1", 0})->LocalPort(); }
  auto refused = FetchFrom({"127.0.0.1", dead_port});
  EXPECT_EQ(refused.status().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr(std::to_string(dead_port)));
  EXPECT_EQ(BlockingClient::Create({"no-such-host.invalid", 1}, {}).status().code(),
            ErrorCode::kNotFound);
}

TEST(BlockingClient, ReadsEveryKindOfBody) {
  const std::pair<const char*, const char*> cases[] = {
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"},
      {"HTTP/1.0 200 OK\r\n\r\nup to the close", "up to the close"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
       "abc"},
      {"HTTP/1.1 204 No Content\r\n\r\n", ""},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
  };
  for (const auto& [bytes, body] : cases) {
    ScriptedServer server(bytes);
    auto response = FetchFrom(server.endpoint());
    ASSERT_TRUE(response.ok()) << bytes << response.status().ToString();
    EXPECT_EQ(response->body, body);
  }
}

TEST(BlockingClient, TellsATruncatedOrMalformedAnswerFromACompleteOne) {
  const std::pair<const char*, ErrorCode> cases[] = {
      {"", ErrorCode::kUnavailable},
      {"HTTP/1.1 200 OK\r\nContent-Le", ErrorCode::kUnavailable},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", ErrorCode::kUnavailable},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", ErrorCode::kUnavailable},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ErrorCode::kDataLoss},
      {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", ErrorCode::kDataLoss},
      {"SSH-2.0-OpenSSH\r\n\r\n", ErrorCode::kDataLoss},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", ErrorCode::kDataLoss},
  };
  for (const auto& [bytes, code] : cases) {
    ScriptedServer server(bytes);
    EXPECT_EQ(FetchFrom(server.endpoint()).status().code(), code) << bytes;
  }
  ScriptedServer endless("HTTP/1.1 200 OK\r\nA: " + std::string(100'000, 'a'));
  EXPECT_EQ(FetchFrom(endless.endpoint()).status().code(), ErrorCode::kDataLoss);
}

TEST(BlockingClient, GivesUpAtTheHeadTimeout) {
  std::vector<ResponseWriter> held;
  auto server =
      StartServer({}, [&](Request&, ResponseWriter writer) { held.push_back(std::move(writer)); });
  auto client =
      BlockingClient::Create({"127.0.0.1", server->port()}, {.head_timeout = milliseconds(30)});
  const auto response = client->Fetch({}, 10);
  EXPECT_EQ(response.status().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(response.status().message(), HasSubstr("waiting for the response"));
  (void)server->Shutdown(milliseconds(0));
}

// Client objects live on their IoThread: this runs `body` there and waits until it calls `finish`.
void RunOn(IoThread& thread, const std::function<void(std::function<void()> finish)>& body) {
  std::promise<void> finished;
  ASSERT_TRUE(thread.TryPost([&] { body([&] { finished.set_value(); }); }));
  ASSERT_EQ(finished.get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(Client, CarriesHundredsOfStreamsOnOneThread) {
  auto server = StartServer({}, Echo);
  const Endpoint endpoint{"127.0.0.1", server->port()};
  auto thread = IoThread::Start({.name = "client"});
  std::unique_ptr<Client> client;
  constexpr int kStreams = 300;
  constexpr int kRequestsEach = 4;
  int complete = 0;
  size_t bytes_received = 0;
  size_t most_connections = 0;
  RunOn(**thread, [&](std::function<void()> finish) {
    client =
        std::make_unique<Client>((*thread)->loop(), endpoint, *Resolve(endpoint), ClientOptions{});
    auto start = std::make_shared<std::function<void(int)>>();
    *start = [&, start, finish](int left) {
      client->Fetch({.target = "/stream"},
                    {.on_head = [](int status, HeaderView) { EXPECT_EQ(status, 200); },
                     .on_data = [&](std::string_view bytes) { bytes_received += bytes.size(); },
                     .on_done =
                         [&, left, start, finish](const Status& status) {
                           EXPECT_TRUE(status.ok()) << status.ToString();
                           most_connections = std::max(most_connections,
                                                       client->num_active() + client->num_idle());
                           if (left > 1) (*start)(left - 1);
                           if (++complete == kStreams * kRequestsEach) {
                             *start = nullptr;
                             finish();
                           }
                         }});
    };
    for (int i = 0; i < kStreams; ++i) (*start)(kRequestsEach);
  });
  RunOn(**thread, [&](std::function<void()> finish) {
    client.reset();
    finish();
  });
  EXPECT_EQ(bytes_received, size_t{kStreams * kRequestsEach} * (10 * 9 + 40 * 10));
  EXPECT_EQ(most_connections, size_t{kStreams});
}

TEST(Client, CancelClosesTheConnectionAndDeliversNothingMore) {
  std::promise<void> gone;
  std::vector<ResponseWriter> held;
  auto server = StartServer({}, [&](Request&, ResponseWriter writer) {
    writer.BeginStream({});
    writer.Write("x");
    writer.OnClose([&] { gone.set_value(); });
    held.push_back(std::move(writer));
  });
  const Endpoint endpoint{"127.0.0.1", server->port()};
  auto thread = IoThread::Start({.name = "client"});
  std::unique_ptr<Client> client;
  RunOn(**thread, [&](std::function<void()> finish) {
    client =
        std::make_unique<Client>((*thread)->loop(), endpoint, *Resolve(endpoint), ClientOptions{});
    auto id = std::make_shared<Client::RequestId>();
    *id = client->Fetch({}, {.on_data =
                                 [&, id, finish](std::string_view) {
                                   client->Cancel(*id);
                                   finish();
                                 },
                             .on_done = [](const Status&) { ADD_FAILURE() << "after Cancel"; }});
  });
  EXPECT_EQ(gone.get_future().wait_for(seconds(20)), std::future_status::ready);
  RunOn(**thread, [&](std::function<void()> finish) {
    EXPECT_EQ(client->num_active(), 0u);
    client.reset();
    finish();
  });
  (void)server->Shutdown(milliseconds(0));
}

TEST(Url, SplitsAndRefuses) {
  const auto url = ParseUrl("http://[::1]:8000/v1?x=1#frag");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->endpoint.host, "::1");
  EXPECT_EQ(url->endpoint.port, 8000);
  EXPECT_EQ(url->target, "/v1?x=1");
  EXPECT_EQ(url->endpoint.ToString(), "[::1]:8000");
  EXPECT_EQ(ParseUrl("localhost:1")->target, "/");
  EXPECT_EQ(ParseUrl("host?q")->target, "/?q");
  for (const char* text : {"", "ftp://a", "http://", "http://:80", "http://a:b", "http://a:70000",
                           "http://[::1", "http://[::1]x", "http://a b"}) {
    EXPECT_FALSE(ParseUrl(text).ok()) << text;
  }
}

TEST(Message, DecodesQueriesAndComparesNamesWithoutCase) {
  EXPECT_EQ(QueryValue("a=1&b=x%20y+z&c", "b"), "x y z");
  EXPECT_EQ(QueryValue("a=1&b=x&c", "c"), "");
  EXPECT_EQ(QueryValue("a=1", "b"), std::nullopt);
  EXPECT_EQ(PercentDecode("%41%zz%4"), "A%zz%4");
  EXPECT_TRUE(EqualsIgnoreCase("Content-Type", "content-type"));
  EXPECT_FALSE(EqualsIgnoreCase("content-type", "content-typ"));
}

}  // namespace
}  // namespace hayate::http
