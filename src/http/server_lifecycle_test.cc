// What happens in time: slow and vanishing clients, back-pressure, threads, shutdown.

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "http/detail/server_fixture.h"

namespace hayate::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST_F(ServerTest, ALargeAnswerMayTakeLongerThanTheIdleTimeout) {
  ServerOptions options;
  options.idle_timeout = milliseconds(20);
  StartServer(std::move(options));
  RawClient client(port());
  client.Send(kGetHold);
  ASSERT_TRUE(handled_.WaitFor(1));
  OnHeld([](ResponseWriter& writer) { writer.Send({}, std::string(16 << 20, 'y')); });
  for (int i = 0; i < 3; ++i) {
    RawClient idle(port());
    idle.Send(kGetEcho);
    EXPECT_THAT(idle.ReadAll(), StartsWith("HTTP/1.1 200 "));  // up to its idle timeout
  }
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

TEST_F(ServerTest, ARequestOnItsWayWhenTheServerStopsIsAnswered) {
  StartServer();
  RawClient idle(port());
  idle.Send(kGetEcho);
  idle.ReadResponse();
  RawClient fresh(port()), silent(port());
  while (server_->num_connections() < 3) std::this_thread::yield();
  std::thread stopper([&] { EXPECT_TRUE(server_->Shutdown(seconds(20)).ok()); });
  EXPECT_EQ(idle.ReadAll(), "");  // closed: the server is draining
  fresh.Send(kGetEcho);
  EXPECT_THAT(fresh.ReadAll(), StartsWith("HTTP/1.1 200 "));
  stopper.join();  // the silent one does not hold it
  EXPECT_EQ(silent.ReadAll(), "");
}

TEST_F(ServerTest, SurvivesAStormOfBrokenClients) {
  ServerOptions options;
  options.num_threads = 2;
  options.max_connections = 40;
  options.max_body_bytes = 10'000;
  options.max_pending_bytes = 10'000;
  options.header_timeout = options.body_timeout = milliseconds(30);
  StartServer(std::move(options));
  constexpr std::string_view kPieces[] = {
      kGetEcho,
      kGetHold,
      "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /hold-stream HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /cut HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /drop HTTP/1.0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\nExpect: 100-continue\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
      "0\r\n\r\n",
      "\r\n",
      "\n",
      "garbage \xFF\x01",
  };
  Rng rng(7);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3000; ++i) {
    if (clients.size() < 50) clients.push_back(std::make_unique<RawClient>(port()));
    const size_t chosen = rng.Below(static_cast<uint32_t>(clients.size()));
    RawClient& client = *clients[chosen];
    const std::string_view piece = kPieces[rng.Below(std::size(kPieces))];
    const uint32_t action = rng.Below(20);
    if (action == 0) client.Reset();
    if (action == 1) client.HalfClose();
    if (action <= 3) {
      clients.erase(clients.begin() + static_cast<ptrdiff_t>(chosen));
    } else {
      client.Send(piece.substr(0, rng.Below(5) == 0 ? rng.Below(20) : piece.size()));
    }
  }
  clients.clear();
  // Held requests of clients that left are told; everybody else has been answered or timed out.
  std::string response;
  for (int i = 0; i < 10'000 && !response.starts_with("HTTP/1.1 200 "); ++i) {
    RawClient client(port());
    client.Send(kGetEcho);
    response = client.ReadResponse();
  }
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  while (server_->num_connections() > 0) std::this_thread::yield();
  EXPECT_TRUE(server_->Shutdown(seconds(20)).ok());
  for (const auto& held : held_) {
    for (const ResponseWriter& writer : held) EXPECT_TRUE(writer.closed());
  }
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
