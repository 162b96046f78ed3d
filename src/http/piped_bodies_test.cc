// Large bodies relayed from a server to a client within the kernel.

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <list>
#include <thread>

#include "base/rng.h"
#include "http/client.h"
#include "http/detail/pipe.h"
#include "http/detail/server_fixture.h"
#include "http/event_loop.h"
#include "http/server.h"

namespace hayate::http {
namespace {

using std::chrono::milliseconds;

// A server that hands every large body on to another one, as a proxy does.
class PipedBodies : public ::testing::Test {
 protected:
  static constexpr size_t kHeldBytes = 50'000;

  void SetUp() override {
    // The end of the way keeps what comes and answers with it.
    end_ = StartServer({.max_body_bytes = 128 << 20}, [](Request& request, ResponseWriter writer) {
      writer.Send({}, request.body);
    });
    to_ = {"127.0.0.1", end_->port()};
    relay_ = StartServer(
        {.stream_body_bytes = kHeldBytes, .max_pending_bytes = 64 << 20},
        [this](Request& request, ResponseWriter writer) { Relay(request, std::move(writer)); });
  }

  void TearDown() override {
    std::promise<void> gone;
    EXPECT_TRUE(relay_->threads()[0]->TryPost([&] {
      hops_.clear();
      client_.reset();
      gone.set_value();
    }));
    gone.get_future().wait();
    (void)relay_->Shutdown(milliseconds(0));
    (void)end_->Shutdown(milliseconds(0));
  }

  static std::unique_ptr<Server> StartServer(ServerOptions options, Handler handler) {
    auto server = Server::Create(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    EXPECT_TRUE((*server)->Start(std::move(handler)).ok());
    return std::move(*server);
  }

  // One request on its way. Owner: the relay's thread.
  struct Hop {
    BodyStream rest;
    ResponseWriter writer;
    Client::RequestId id = 0;
    bool started = false;
    bool paused = false;
    std::string answer;
  };

  void Relay(Request& request, ResponseWriter writer) {
    if (!request.rest) return writer.Send({}, request.body);
    if (client_ == nullptr) {
      client_ =
          std::make_unique<Client>(request.thread.loop(), to_, *Resolve(to_), ClientOptions());
    }
    Hop& hop = hops_.emplace_back(Hop{std::move(*request.rest), std::move(writer)});
    const auto held = std::make_shared<const std::string>(std::move(request.body));
    ClientRequest out{.method = "POST"};
    out.shared_body = {held, {std::string_view(*held)}};
    out.streamed_bytes =
        request.body_bytes ? *request.body_bytes - held->size() : ClientRequest::kUnknownLength;
    hop.id = client_->Fetch(
        std::move(out), {.on_data = [&hop](std::string_view bytes) { hop.answer.append(bytes); },
                         .on_done =
                             [&hop](const Status& status) {
                               hop.writer.Send({.status = status.ok() ? 200 : 502}, hop.answer);
                             },
                         .on_drained = [this, &hop] { OnDrained(hop); }});
    hop.writer.OnClose([this, &hop] { client_->Cancel(hop.id); });
  }

  void OnDrained(Hop& hop) {
    if (std::exchange(hop.started, true)) {
      if (std::exchange(hop.paused, false)) hop.rest.Resume();
      return;
    }
    if (auto pipe = client_->UploadPipe(hop.id)) {
      hop.rest.PipeInto(std::move(pipe), [this, &hop](size_t num_bytes) {
        piped_bytes_ += num_bytes;
        client_->WritePiped(hop.id);
        HoldBack(hop);
      });
    }
    hop.rest.Start(
        [this, &hop](std::string_view bytes) {
          copied_bytes_ += bytes.size();
          client_->Write(hop.id, bytes);
          HoldBack(hop);
        },
        [this, &hop](const Status& status) {
          if (status.ok()) client_->EndBody(hop.id);
        });
  }

  void HoldBack(Hop& hop) {
    const size_t unsent = client_->pending_bytes(hop.id);
    most_unsent_ = std::max(most_unsent_.load(), unsent);
    if (hop.paused || unsent == 0) return;
    hop.paused = true;
    held_back_.Increment();
    hop.rest.Pause();
  }

  static std::string Body(size_t size) {
    Rng rng(size);
    std::string body(size, 'x');
    for (char& c : body) c = static_cast<char>(rng.Below(256));
    return body;
  }

  static std::string Head(size_t size) {
    return "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n";
  }

  std::unique_ptr<Server> end_;
  std::unique_ptr<Server> relay_;
  Endpoint to_;
  std::unique_ptr<Client> client_;
  std::list<Hop> hops_;
  // Written on the relay's thread before the answer, read behind it.
  size_t piped_bytes_ = 0;
  size_t copied_bytes_ = 0;
  std::atomic<size_t> most_unsent_ = 0;
  Counter held_back_;
};

TEST_F(PipedBodies, ArriveUnchangedAndLeaveTheNextRequestAlone) {
  for (const size_t size : {size_t{60'001}, size_t{1} << 20, size_t{3'333'333}, size_t{9} << 20}) {
    const std::string body = Body(size);
    RawClient client(relay_->port());
    client.Send(Head(size) + body + Head(5) + "after");
    EXPECT_TRUE(client.ReadResponse().ends_with(body)) << size;
    EXPECT_TRUE(client.ReadResponse().ends_with("after")) << size;
  }
  EXPECT_GT(piped_bytes_, size_t{9} << 20);
  EXPECT_EQ(copied_bytes_, 0u);
}

TEST_F(PipedBodies, MayComeInPiecesOfAnySize) {
  const std::string body = Body(2'500'000);
  RawClient client(relay_->port());
  client.Send(Head(body.size()));
  Rng rng(3);
  for (size_t at = 0; at < body.size();) {
    const size_t size =
        std::min<size_t>(1 + rng.Below(at < 100'000 ? 3'000 : 200'000), body.size() - at);
    client.Send(std::string_view(body).substr(at, size));
    at += size;
  }
  EXPECT_TRUE(client.ReadResponse().ends_with(body));
  EXPECT_EQ(copied_bytes_, 0u);
}

TEST_F(PipedBodies, OfUnknownLengthAreCopied) {
  const std::string body = Body(300'000);
  RawClient client(relay_->port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.Send("493e0\r\n" + body + "\r\n0\r\n\r\n");
  EXPECT_TRUE(client.ReadResponse().ends_with(body));
  EXPECT_EQ(piped_bytes_, 0u);
  EXPECT_GT(copied_bytes_, 0u);
}

// A peer that reads when it is told to; the kernel alone holds what it has not read.
TEST_F(PipedBodies, ASlowReaderHoldsTheSenderBack) {
  auto listener = std::move(*Socket::Bind({"127.0.0.1", 0}));
  ASSERT_TRUE(listener.Listen(8).ok());
  to_ = {"127.0.0.1", listener.LocalPort()};
  const std::string body = Body(60'000'000);
  RawClient client(relay_->port());
  std::atomic<size_t> sent{0};
  std::thread sender([&] {
    client.Send(Head(body.size()));
    for (size_t at = 0; at < body.size(); at += 1'000'000) {
      client.Send(std::string_view(body).substr(at, 1'000'000));
      sent = at + 1'000'000;
    }
  });
  const auto wait = [](int fd) {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, 20'000) > 0;
  };
  Socket peer;
  ASSERT_TRUE(wait(listener.fd()));
  ASSERT_EQ(listener.Accept(peer).kind, IoResult::Kind::kOk);
  ASSERT_TRUE(held_back_.WaitFor(1));  // the buffers on the way are full
  EXPECT_LT(sent, body.size());
  std::string received;
  std::vector<char> buffer(1 << 20);
  const auto whole = [&] {
    const size_t head = received.find("\r\n\r\n");
    return head != std::string::npos && received.size() >= head + 4 + body.size();
  };
  while (!whole()) {
    const IoResult result = peer.Read(buffer);
    if (result.kind == IoResult::Kind::kOk) {
      received.append(buffer.data(), result.num_bytes);
    } else {
      ASSERT_EQ(result.kind, IoResult::Kind::kWouldBlock);
      ASSERT_TRUE(wait(peer.fd()));
    }
  }
  sender.join();
  EXPECT_TRUE(received.ends_with(body));
  EXPECT_LE(most_unsent_, Pipe::kMaxBytes);
  (void)peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_TRUE(client.ReadResponse().ends_with("ok"));
}

TEST_F(PipedBodies, AReaderThatLeavesEndsTheRequest) {
  auto listener = std::move(*Socket::Bind({"127.0.0.1", 0}));
  ASSERT_TRUE(listener.Listen(8).ok());
  to_ = {"127.0.0.1", listener.LocalPort()};
  RawClient client(relay_->port());
  client.Send(Head(60'000'000) + Body(2'000'000));
  pollfd entry{listener.fd(), POLLIN, 0};
  ASSERT_GT(poll(&entry, 1, 20'000), 0);
  Socket peer;
  ASSERT_EQ(listener.Accept(peer).kind, IoResult::Kind::kOk);
  peer.Close();
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 502"));
}

}  // namespace
}  // namespace hayate::http
