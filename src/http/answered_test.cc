// What a handler learns of the other end and of how its exchange ended.

#include <gmock/gmock.h>

#include "http/detail/server_fixture.h"

namespace hayate::http {
namespace {

using ::testing::HasSubstr;

// Adds a field to every answer and keeps how exchanges ended.
class AnsweredTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = Server::Create({});
    ASSERT_TRUE(created.ok());
    server_ = std::move(*created);
    ASSERT_TRUE(server_
                    ->Start([this](Request& request, ResponseWriter writer) {
                      Handle(request, std::move(writer));
                    })
                    .ok());
  }
  void TearDown() override { (void)server_->Shutdown(std::chrono::milliseconds(0)); }

  void Handle(Request& request, ResponseWriter writer) {
    writer.AddField("X-Peer", request.peer);
    writer.OnFinish([this](const Answered& answered) {
      std::lock_guard lock(mutex_);
      ends_.push_back(answered);
      finished_.Increment();
    });
    if (request.path == "/send") return writer.Send({.status = 201}, "four");
    if (request.path == "/drop") return;
    writer.BeginStream({});
    writer.Write("12");
    writer.Write("345");
    if (request.path == "/cut") return;
    if (request.path == "/stream") return writer.End();
    held_ = std::move(writer);
  }

  std::string Ask(const std::string& path) {
    RawClient client(server_->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    return client.ReadAll();
  }
  Answered End(int count) {
    EXPECT_TRUE(finished_.WaitFor(count));
    std::lock_guard lock(mutex_);
    EXPECT_EQ(ends_.size(), static_cast<size_t>(count));
    return ends_.back();
  }

  std::mutex mutex_;
  std::vector<Answered> ends_;  // guarded by mutex_
  Counter finished_;
  ResponseWriter held_{nullptr};
  std::unique_ptr<Server> server_;
};

TEST_F(AnsweredTest, WholeAnswersAndStreamsEndComplete) {
  EXPECT_THAT(Ask("/send"), HasSubstr("\r\nX-Peer: 127.0.0.1\r\n"));
  Answered end = End(1);
  EXPECT_EQ(end.status, 201);
  EXPECT_EQ(end.body_bytes, 4u);
  EXPECT_TRUE(end.complete);
  EXPECT_THAT(Ask("/stream"), HasSubstr("\r\nX-Peer: 127.0.0.1\r\n"));
  end = End(2);
  EXPECT_EQ(end.status, 200);
  EXPECT_EQ(end.body_bytes, 5u);
  EXPECT_TRUE(end.complete);
}

TEST_F(AnsweredTest, AnUnansweredRequestEndsWith500) {
  EXPECT_THAT(Ask("/drop"), HasSubstr("\r\nX-Peer: 127.0.0.1\r\n"));
  EXPECT_EQ(End(1).status, 500);
}

TEST_F(AnsweredTest, CutStreamsAndLostClientsEndIncomplete) {
  Ask("/cut");
  Answered end = End(1);
  EXPECT_EQ(end.status, 200);
  EXPECT_FALSE(end.complete);
  {
    RawClient client(server_->port());
    client.Send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    client.ReadUntil("345");
    client.Reset();
  }
  end = End(2);
  EXPECT_EQ(end.body_bytes, 5u);
  EXPECT_FALSE(end.complete);
}

TEST(Loopback, IsToldFromOtherAddresses) {
  for (const char* own : {"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(own)) << own;
  }
  for (const char* other : {"", "10.0.0.1", "128.0.0.1", "::", "fe80::1", "::ffff:10.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

}  // namespace
}  // namespace hayate::http
