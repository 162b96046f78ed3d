#pragma once
// For tests: a server whose handler has a route for everything that they need.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/detail/raw_client.h"
#include "http/server.h"
#include "http/sse.h"

namespace hayate::http {

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
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= count; });
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
    if (server_ != nullptr) (void)server_->Shutdown(std::chrono::milliseconds(0));
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

inline constexpr std::string_view kGetEcho = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
inline constexpr std::string_view kGetHold = "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n";

inline std::string Post(std::string_view body) {
  return "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

}  // namespace hayate::http
