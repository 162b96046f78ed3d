#include "http/detail/listener.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

#include "base/log.h"

namespace hayate::http {

Listener::Listener(Socket socket, const std::vector<std::unique_ptr<Shard>>& shards)
    : loop_(shards[0]->loop()),
      socket_(std::move(socket)),
      shards_(shards),
      resume_timer_(loop_, [this] { Resume(); }) {}

Status Listener::Start() {
  RETURN_IF_ERROR(socket_.Listen(kBacklog));
  // Level-triggered: what one turn leaves is reported again.
  return loop_.Watch(socket_.fd(), EPOLLIN, this);
}

void Listener::Close() {
  if (!socket_.open()) return;
  resume_timer_.Set(Timer::kNever);
  loop_.Unwatch(socket_.fd());
  socket_.Close();
}

void Listener::OnEvents(uint32_t) {
  const auto& identity = shards_[0]->options().tls;
  const auto tls = identity == nullptr ? nullptr : identity->Current();
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    Socket accepted;
    const IoResult result = socket_.Accept(accepted);
    if (result.kind == IoResult::Kind::kWouldBlock) return;
    if (result.kind != IoResult::Kind::kOk) {
      LOG_WARN("accept: {}; trying again in 100 ms", std::strerror(result.error));
      return Pause();
    }
    if (tls != nullptr) accepted.AcceptTls(tls);
    Place(std::move(accepted));
  }
}

void Listener::Place(Socket socket) {
  int total = 0;
  Shard* chosen = shards_[0].get();
  for (const auto& shard : shards_) {
    total += shard->num_connections();
    if (shard->num_connections() < chosen->num_connections()) chosen = shard.get();
  }
  if (total >= chosen->options().max_connections) {
    return shards_[0]->AdoptToRefuse(std::move(socket));
  }
  chosen->CountIn();
  if (chosen == shards_[0].get()) return chosen->Adopt(std::move(socket));
  // A std::function must be copyable, hence the shared_ptr. A refused task closes the socket.
  auto moved = std::make_shared<Socket>(std::move(socket));
  if (!chosen->thread().TryPost([chosen, moved] { chosen->Adopt(std::move(*moved)); })) {
    chosen->CountOut();
  }
}

// Out of descriptors: the connections wait in the kernel's backlog instead of spinning the loop.
void Listener::Pause() {
  loop_.Unwatch(socket_.fd());
  resume_timer_.Set(loop_.After(kPause));
}

void Listener::Resume() {
  if (const Status status = loop_.Watch(socket_.fd(), EPOLLIN, this); !status.ok()) {
    resume_timer_.Set(loop_.After(kPause));
  }
}

}  // namespace hayate::http
