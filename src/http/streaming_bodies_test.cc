// Bodies that flow instead of being held: requests into a handler, requests out of a client,
// responses with back-pressure.

#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "base/rng.h"
#include "http/client.h"
#include "http/detail/server_fixture.h"
#include "http/event_loop.h"

namespace hayate::http {
namespace {

// Echoes what follows the first part of a body; a server that reads at the pace it is told to.
class StreamingBodies : public ::testing::Test {
 protected:
  void Start(ServerOptions options) {
    auto created = Server::Create(std::move(options));
    ASSERT_TRUE(created.ok());
    server_ = std::move(*created);
    const Status started = server_->Start(
        [this](Request& request, ResponseWriter writer) { Handle(request, std::move(writer)); });
    ASSERT_TRUE(started.ok());
  }
  void TearDown() override {
    if (server_ != nullptr) (void)server_->Shutdown(std::chrono::milliseconds(0));
  }

  void Handle(Request& request, ResponseWriter writer) {
    if (!request.rest) {
      writer.Send({}, request.body);
      return;
    }
    announced_ = request.body_bytes;
    first_part_ = request.body.size();
    struct Echo {
      Echo(BodyStream r, ResponseWriter w) : rest(std::move(r)), writer(std::move(w)) {}
      BodyStream rest;
      ResponseWriter writer;
      std::string body;
    };
    auto echo = std::make_shared<Echo>(std::move(*request.rest), std::move(writer));
    echo->body = std::move(request.body);
    echo->writer.OnClose([this] { closed_.Increment(); });
    if (request.path == "/early") {
      return echo->writer.Send({.status = 401}, "no");
    }
    if (request.path == "/ignore") return held_.push_back([echo] {});
    // Kept by held_: a body stream must not own itself.
    Echo* raw = echo.get();
    echo->rest.Start([echo = raw](std::string_view bytes) { echo->body.append(bytes); },
                     [echo = raw](const Status& status) {
                       echo->writer.Send({.status = status.ok() ? 200 : 413},
                                         status.ok() ? echo->body : status.message());
                     });
    held_.push_back([echo] {});
  }

  std::string Body(size_t size) {
    Rng rng(7);
    std::string body(size, 'x');
    for (char& c : body) c = static_cast<char>('a' + rng.Below(26));
    return body;
  }

  std::unique_ptr<Server> server_;
  std::optional<uint64_t> announced_;
  size_t first_part_ = 0;
  Counter closed_;
  std::vector<std::function<void()>> held_;
};

TEST_F(StreamingBodies, ReachTheHandlerBeforeTheyAreWholeAndArriveUnchanged) {
  Start({.stream_body_bytes = 100'000});
  const std::string body = Body(3'000'000);
  RawClient client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body + "GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = client.ReadResponse();
  EXPECT_TRUE(answer.ends_with(body));
  EXPECT_EQ(announced_, body.size());
  EXPECT_GT(first_part_, 100'000u);
  EXPECT_LT(first_part_, body.size());
  EXPECT_TRUE(client.ReadResponse().starts_with("HTTP/1.1 200"));  // the pipelined one
}

TEST_F(StreamingBodies, MayBeChunked) {
  Start({.stream_body_bytes = 1000});
  const std::string body = Body(50'000);
  RawClient client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (size_t at = 0; at < body.size(); at += 5000)
    client.Send("1388\r\n" + body.substr(at, 5000) + "\r\n");
  client.Send("0\r\n\r\n");
  EXPECT_TRUE(client.ReadResponse().ends_with(body));
}

TEST_F(StreamingBodies, TooLongOnesEndWithAnError) {
  Start({.max_body_bytes = 20'000, .stream_body_bytes = 1000});
  RawClient client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 5; ++i) client.Send("1388\r\n" + std::string(5000, 'x') + "\r\n");
  EXPECT_TRUE(client.ReadResponse().starts_with("HTTP/1.1 413"));
}

TEST_F(StreamingBodies, AnEarlyAnswerClosesTheConnection) {
  Start({.stream_body_bytes = 1000});
  RawClient client(server_->port());
  client.Send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
              std::string(5000, 'x'));
  const std::string answer = client.ReadAll();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 401"));
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST_F(StreamingBodies, AClientThatLeavesIsNoticedWhileTheRestIsUnread) {
  Start({.stream_body_bytes = 1000});
  RawClient client(server_->port());
  client.Send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
              std::string(5000, 'x'));
  client.HalfClose();
  EXPECT_TRUE(closed_.WaitFor(1));
}

// Runs one request of a Client on a loop of its own.
struct Outcome {
  int status = 0;
  std::string body;
  std::optional<Status> done;
};

TEST_F(StreamingBodies, AClientUploadsPiecesAndWritesWithoutCopying) {
  Start({.stream_body_bytes = 100'000});
  auto loop = std::move(*EventLoop::Create(16));
  const Endpoint endpoint{"127.0.0.1", server_->port()};
  Client client(*loop, endpoint, *Resolve(endpoint), {});
  const auto whole = std::make_shared<const std::string>(Body(400'000));
  const std::string tail = Body(700'000);
  for (const uint64_t announced : {uint64_t{tail.size()}, ClientRequest::kUnknownLength}) {
    Outcome exchange;
    bool finished = false;
    size_t written = 0;
    Client::RequestId id = 0;
    ClientRequest request{.method = "POST", .target = "/up", .streamed_bytes = announced};
    const std::string_view view = *whole;
    request.shared_body = {whole, {view.substr(0, 10), view.substr(10, 5), view.substr(15)}};
    id = client.Fetch(std::move(request),
                      {.on_head = [&](int status, HeaderView) { exchange.status = status; },
                       .on_data = [&](std::string_view bytes) { exchange.body.append(bytes); },
                       .on_done =
                           [&](const Status& status) {
                             exchange.done = status;
                             finished = true;
                           },
                       .on_drained =
                           [&] {
                             if (written == tail.size()) return;
                             const size_t piece = std::min<size_t>(50'000, tail.size() - written);
                             client.Write(id, std::string_view(tail).substr(written, piece));
                             written += piece;
                             if (written == tail.size()) client.EndBody(id);
                           }});
    loop->RunUntil(finished);
    ASSERT_TRUE(exchange.done->ok()) << exchange.done->ToString();
    EXPECT_EQ(exchange.status, 200);
    EXPECT_TRUE(exchange.body == *whole + tail);
    EXPECT_EQ(client.num_idle(), 1u);
  }
}

TEST_F(StreamingBodies, APausedResponseHoldsTheServerBackAndGoesOn) {
  Start({.max_pending_bytes = 64 << 20});
  auto loop = std::move(*EventLoop::Create(16));
  const Endpoint endpoint{"127.0.0.1", server_->port()};
  Client client(*loop, endpoint, *Resolve(endpoint), {.read_timeout = std::chrono::seconds(5)});
  const std::string body = Body(30'000'000);
  size_t received = 0;
  bool finished = false;
  bool paused = false;
  Client::RequestId id = 0;
  Timer resume(*loop, [&] {
    EXPECT_LT(received, body.size());
    client.Resume(id);
  });
  id = client.Fetch({.method = "POST", .target = "/", .body = body},
                    {.on_data =
                         [&](std::string_view bytes) {
                           received += bytes.size();
                           if (paused || received < 100'000) return;
                           paused = true;
                           client.Pause(id);
                           resume.Set(loop->After(std::chrono::milliseconds(50)));
                         },
                     .on_done =
                         [&](const Status& status) {
                           EXPECT_TRUE(status.ok()) << status.ToString();
                           finished = true;
                         }});
  loop->RunUntil(finished);
  EXPECT_EQ(received, body.size());
  EXPECT_TRUE(paused);
}

}  // namespace
}  // namespace hayate::http
