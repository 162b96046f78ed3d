#pragma once
// Accepts connections on the first IoThread and deals them out to the least loaded one.

#include <chrono>
#include <memory>
#include <vector>

#include "http/detail/shard.h"
#include "http/detail/socket.h"
#include "http/event_loop.h"

namespace hayate::http {

// Owner: the loop thread of shards[0].
class Listener final : public Watcher {
 public:
  // `shards` outlives the listener.
  Listener(Socket socket, const std::vector<std::unique_ptr<Shard>>& shards);

  Status Start();
  void Close();
  int fd() const { return socket_.fd(); }
  void OnEvents(uint32_t events) override;

 private:
  static constexpr int kBacklog = 1024;
  static constexpr int kMaxAcceptsPerTurn = 64;
  static constexpr std::chrono::milliseconds kPause{100};

  void Place(Socket socket);
  void Pause();
  void Resume();

  EventLoop& loop_;
  Socket socket_;
  const std::vector<std::unique_ptr<Shard>>& shards_;
  Timer resume_timer_;
};

}  // namespace hayate::http
