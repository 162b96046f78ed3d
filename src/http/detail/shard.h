#pragma once
// One IoThread's share of a server: its connections and what they have in common. Owner: that
// thread, except where said.

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>

#include "http/detail/connection.h"
#include "http/detail/response_format.h"
#include "http/server.h"

namespace hayate::http {

class Shard {
 public:
  Shard(const ServerOptions& options, IoThread& thread) : options_(options), thread_(thread) {}

  // Before the first connection.
  void SetHandler(Handler handler) { handler_ = std::move(handler); }
  // Runs on the loop thread when draining and no connection is left.
  void SetOnEmpty(std::function<void()> on_empty) { on_empty_ = std::move(on_empty); }

  // The acceptor counts a connection in before it hands it over, so that the limit is exact.
  void CountIn() { num_connections_.fetch_add(1, std::memory_order_relaxed); }
  void CountOut() { num_connections_.fetch_sub(1, std::memory_order_relaxed); }
  // Any thread.
  int num_connections() const { return num_connections_.load(std::memory_order_relaxed); }

  void Adopt(Socket socket);
  // Answers 503 and closes; just closes when many such answers are under way.
  void AdoptToRefuse(Socket socket);
  void Remove(Connection* connection);

  void Drain();
  void AbortAll();

  const ServerOptions& options() const { return options_; }
  const Handler& handler() const { return handler_; }
  IoThread& thread() { return thread_; }
  EventLoop& loop() { return thread_.loop(); }
  bool draining() const { return draining_; }
  std::string_view Date() { return date_.Now(); }
  // Where every connection of this thread reads to: one buffer instead of one each.
  std::span<char> scratch() { return scratch_; }
  ServerOptions::ErrorBody RenderError(int status, std::string_view reason) const;

 private:
  static constexpr size_t kMaxRefusals = 64;
  // A large body costs by the call, and a call costs by the wake-ups of both peers. Measured with a
  // relay of 16 MB on loopback: 5.7 ms of CPU by calls of 256 KiB, 4.3 ms by calls of 1 MiB.
  static constexpr size_t kScratchBytes = 1 << 20;

  void CheckEmpty();

  const ServerOptions& options_;
  IoThread& thread_;
  Handler handler_;
  std::function<void()> on_empty_;
  bool draining_ = false;
  // Read by the acceptor to balance and to bound; publishes nothing: relaxed.
  std::atomic<int> num_connections_{0};
  size_t num_refusals_ = 0;
  struct Owned {
    std::unique_ptr<Connection> connection;
    bool refusal = false;
  };
  std::unordered_map<Connection*, Owned> connections_;
  DateCache date_;
  std::array<char, kScratchBytes> scratch_;
};

}  // namespace hayate::http
