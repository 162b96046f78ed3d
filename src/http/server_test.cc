#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "http/detail/raw_client.h"
#include "http/sse.h"

namespace hayate::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Counts up; tests wait for it to reach a number.
class Counter {
 public:
  void Increment() {
    std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool WaitFor(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(20), [&] { return count_ >= count; });
  }
  int count() {
    std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// A server whose handler has a route for everything that the tests need.
class ServerTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options) {
    auto created = Server::Create(std::move(options));
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    server_ = std::move(*created);
    held_.resize(server_->threads().size());
    const Status started = server_->Start(
        [this](Request& request, ResponseWriter writer) { Handle(request, std::move(writer)); });
    ASSERT_TRUE(started.ok()) << started.ToString();
  }
  void StartServer() { StartServer({}); }

  void TearDown() override {
    if (server_ != nullptr) (void)server_->Shutdown(milliseconds(0));
  }

  uint16_t port() const { return server_->port(); }

  void Handle(Request& request, ResponseWriter writer) {
    handled_.Increment();
    if (request.path == "/echo") {
      const Header header{"X-Method", request.method};
      return writer.Send({.content_type = "text/plain", .headers = {&header, 1}}, request.body);
    }
    if (request.path == "/stream") {
      writer.BeginStream({.content_type = kSseContentType});
      for (int i = 0; i < 3; ++i) writer.Write("data: " + std::to_string(i) + "\n\n");
      return writer.End();
    }
    if (request.path == "/drop") return;
    if (request.path == "/cut") {
      writer.BeginStream({});
      return writer.Write("partial");
    }
    if (request.path == "/nothing") return writer.Send({.status = 204}, "");
    if (request.path == "/inject") {
      const Header header{"X-Id", "a\r\nEvil: yes"};
      return writer.Send({.headers = {&header, 1}}, "");
    }
    // /hold and /hold-stream: kept until a test releases them.
    if (request.path == "/hold-stream") {
      writer.BeginStream({.content_type = kSseContentType});
      writer.Write("data: first\n\n");
    }
    writer.OnClose([this] { closed_.Increment(); });
    held_[request.thread.index()].push_back(std::move(writer));
  }

  // Runs `action` on every writer held by thread 0, there.
  void OnHeld(std::function<void(ResponseWriter&)> action) {
    ASSERT_TRUE(server_->threads()[0]->TryPost([this, action = std::move(action)] {
      for (ResponseWriter& writer : held_[0]) action(writer);
    }));
  }

  std::vector<std::vector<ResponseWriter>> held_;  // [thread]
  Counter handled_;
  Counter closed_;
  std::unique_ptr<Server> server_;
};

constexpr std::string_view kGetEcho = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr std::string_view kGetHold = "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n";

std::string Post(std::string_view body) {
  return "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

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

TEST_F(ServerTest, SlowRequestsGet408AndIdleConnectionsAreClosed) {
  ServerOptions options;
  options.header_timeout = milliseconds(50);
  options.body_timeout = milliseconds(50);
  options.idle_timeout = milliseconds(50);
  StartServer(std::move(options));
  RawClient slow_head(port());
  slow_head.Send("GET / HTTP/1.1\r\nHo");
  RawClient slow_body(port());
  slow_body.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  RawClient silent(port());
  RawClient idle(port());
  idle.Send(kGetEcho);
  EXPECT_THAT(slow_head.ReadAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(slow_body.ReadAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_THAT(idle.ReadAll(), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(idle.closed());
}

TEST_F(ServerTest, AWaitingRequestIsNotTimedOut) {
  ServerOptions options;
  options.header_timeout = milliseconds(20);
  options.idle_timeout = milliseconds(20);
  StartServer(std::move(options));
  RawClient client(port());
  client.Send(kGetHold);
  RawClient silent(port());
  EXPECT_EQ(silent.ReadAll(), "");  // its own timeout has passed
  OnHeld([](ResponseWriter& writer) { writer.Send({}, "late"); });
  EXPECT_THAT(client.ReadResponse(), EndsWith("late"));
}

TEST_F(ServerTest, TellsWhenTheClientGoesAwayBeforeTheAnswer) {
  StartServer();
  RawClient half(port());
  half.Send(kGetHold);
  ASSERT_TRUE(handled_.WaitFor(1));
  half.HalfClose();
  ASSERT_TRUE(closed_.WaitFor(1));
  RawClient reset(port());
  reset.Send(kGetHold);
  ASSERT_TRUE(handled_.WaitFor(2));
  reset.Reset();
  ASSERT_TRUE(closed_.WaitFor(2));
  Counter checked;
  OnHeld([&](ResponseWriter& writer) {
    EXPECT_TRUE(writer.closed());
    writer.Send({}, "nobody reads this");
    checked.Increment();
  });
  ASSERT_TRUE(checked.WaitFor(2));
}

TEST_F(ServerTest, TellsWhenTheClientGoesAwayInAStream) {
  StartServer();
  RawClient client(port());
  client.Send("GET /hold-stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("first\n\n"), EndsWith("data: first\n\n"));
  client.Reset();
  ASSERT_TRUE(closed_.WaitFor(1));
}

TEST_F(ServerTest, AnswersARequestWhoseClientHalfClosedAtOnce) {
  StartServer();
  RawClient client(port());
  client.Send(kGetEcho);
  client.HalfClose();
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ServerTest, AnUnansweredRequestGets500AndACutStreamIsVisible) {
  StartServer();
  RawClient client(port());
  client.Send("GET /drop HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 500 "));
  client.Send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), Not(HasSubstr("0\r\n\r\n")));
  EXPECT_TRUE(client.closed());
}

TEST_F(ServerTest, AClientThatDoesNotReadIsCutAtTheBound) {
  ServerOptions options;
  options.max_pending_bytes = 64 << 10;
  StartServer(std::move(options));
  RawClient client(port());
  client.ShrinkReceiveBuffer();
  client.Send("GET /hold-stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(handled_.WaitFor(1));
  const std::string event(16 << 10, 'x');
  std::atomic<size_t> most{0};
  while (closed_.count() == 0) {
    Counter written;
    OnHeld([&](ResponseWriter& writer) {
      writer.Write(event);
      if (writer.pending_bytes() > most) most = writer.pending_bytes();
      written.Increment();
    });
    ASSERT_TRUE(written.WaitFor(1));
  }
  EXPECT_LE(most, (64u << 10) + event.size() + 100);
}

TEST_F(ServerTest, AStalledClientIsCutByTheWriteTimeout) {
  ServerOptions options;
  options.write_timeout = milliseconds(50);
  options.max_pending_bytes = 64 << 20;
  StartServer(std::move(options));
  RawClient client(port());
  client.ShrinkReceiveBuffer();
  client.Send("GET /hold-stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(handled_.WaitFor(1));
  OnHeld([](ResponseWriter& writer) { writer.Write(std::string(16 << 20, 'x')); });
  EXPECT_TRUE(closed_.WaitFor(1));
}

TEST_F(ServerTest, LargeAnswersReachASlowReaderWhole) {
  StartServer();
  RawClient client(port());
  client.Send(kGetHold);
  ASSERT_TRUE(handled_.WaitFor(1));
  OnHeld([](ResponseWriter& writer) { writer.Send({}, std::string(16 << 20, 'y')); });
  const std::string response = client.ReadResponse();
  EXPECT_EQ(response.size() - response.find("\r\n\r\n") - 4, 16u << 20);
}

TEST_F(ServerTest, OtherThreadsReachAStreamThroughPostsAndWakeups) {
  ServerOptions options;
  options.num_threads = 2;
  StartServer(std::move(options));
  RawClient client(port());
  client.Send("GET /hold-stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(handled_.WaitFor(1));
  // An engine: events in its own queue, one wakeup for many of them.
  constexpr int kEvents = 5000;
  std::mutex mutex;
  std::vector<int> outbox;
  std::atomic<int> wakes{0};
  int next = 0;
  {
    Wakeup wakeup(*server_->threads()[0], [&] {
      ++wakes;
      std::vector<int> batch;
      {
        std::lock_guard lock(mutex);
        batch.swap(outbox);
      }
      for (int value : batch) {
        EXPECT_EQ(value, next++);
        held_[0][0].Write("data: " + std::to_string(value) + "\n\n");
      }
      if (next == kEvents) held_[0][0].End();
    });
    std::thread engine([&] {
      for (int i = 0; i < kEvents; ++i) {
        {
          std::lock_guard lock(mutex);
          outbox.push_back(i);
        }
        wakeup.Signal();
      }
    });
    const std::string response = client.ReadUntil("0\r\n\r\n");
    EXPECT_THAT(response, HasSubstr("data: 4999\n\n"));
    engine.join();
  }
  EXPECT_LE(wakes, kEvents);
}

TEST_F(ServerTest, SpreadsConnectionsOverItsThreads) {
  ServerOptions options;
  options.num_threads = 3;
  StartServer(std::move(options));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->Send(kGetHold);
    ASSERT_TRUE(handled_.WaitFor(i + 1));
  }
  EXPECT_EQ(server_->num_connections(), 6);
  EXPECT_EQ(server_->Shutdown(milliseconds(0)).code(), ErrorCode::kDeadlineExceeded);
  for (const auto& held : held_) EXPECT_EQ(held.size(), 2u);
  EXPECT_EQ(closed_.count(), 6);
}

TEST_F(ServerTest, ShutdownLetsRequestsUnderWayFinish) {
  StartServer();
  RawClient idle(port());
  idle.Send(kGetEcho);
  idle.ReadResponse();
  RawClient busy(port());
  busy.Send("GET /hold-stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(handled_.WaitFor(2));
  std::thread stopper([&] { EXPECT_TRUE(server_->Shutdown(seconds(20)).ok()); });
  EXPECT_EQ(idle.ReadAll(), "");  // closed: the server is draining
  OnHeld([](ResponseWriter& writer) {
    writer.Write("data: last\n\n");
    writer.End();
  });
  EXPECT_THAT(busy.ReadAll(), EndsWith("data: last\n\n\r\n0\r\n\r\n"));
  stopper.join();
  RawClient late(port());
  EXPECT_FALSE(late.Send(kGetEcho) && !late.ReadAll().empty());
}

TEST_F(ServerTest, PostsAreBoundedAndRefusedAfterTheEnd) {
  ServerOptions options;
  options.max_posted = 4;
  StartServer(std::move(options));
  IoThread& thread = *server_->threads()[0];
  std::mutex gate;
  Counter running;
  gate.lock();
  ASSERT_TRUE(thread.TryPost([&] {
    running.Increment();
    std::lock_guard wait(gate);
  }));
  ASSERT_TRUE(running.WaitFor(1));
  int accepted = 0;
  while (thread.TryPost([&] { EXPECT_TRUE(thread.IsCurrent()); })) ++accepted;
  EXPECT_EQ(accepted, 4);
  gate.unlock();
  EXPECT_TRUE(server_->Shutdown(seconds(20)).ok());
  EXPECT_FALSE(thread.TryPost([] {}));
}

TEST(Server, NamesTheAddressItCannotBind) {
  auto first = Server::Create({});
  ASSERT_TRUE(first.ok());
  auto taken = Server::Create({.listen = {"127.0.0.1", (*first)->port()}});
  // Bound but not listening, the port is shared by SO_REUSEADDR until Start.
  if (taken.ok()) {
    ASSERT_TRUE((*first)->Start([](Request&, ResponseWriter) {}).ok());
    EXPECT_FALSE((*taken)->Start([](Request&, ResponseWriter) {}).ok());
  }
  auto nowhere = Server::Create({.listen = {"203.0.113.1", 1}});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.status().message(), HasSubstr("203.0.113.1:1"));
}

}  // namespace
}  // namespace hayate::http
