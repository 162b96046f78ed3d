#include "http/detail/shard.h"

#include <utility>
#include <vector>

namespace hayate::http {

void Shard::Adopt(Socket socket) {
  auto connection = std::make_unique<Connection>(*this, std::move(socket));
  Connection* raw = connection.get();
  if (draining_ || !raw->Start()) {
    CountOut();
    CheckEmpty();
    return;
  }
  connections_[raw] = {std::move(connection), false};
}

void Shard::AdoptToRefuse(Socket socket) {
  if (num_refusals_ == kMaxRefusals) return;
  auto connection = std::make_unique<Connection>(*this, std::move(socket));
  Connection* raw = connection.get();
  if (!raw->Start()) return;
  ++num_refusals_;
  connections_[raw] = {std::move(connection), true};
  raw->Refuse(503, "too many connections");
}

void Shard::Remove(Connection* connection) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return;
  if (it->second.refusal) {
    --num_refusals_;
  } else {
    CountOut();
  }
  loop().Retire(std::move(it->second.connection));
  connections_.erase(it);
  CheckEmpty();
}

void Shard::CheckEmpty() {
  if (draining_ && connections_.empty() && on_empty_) on_empty_();
}

// Both walk over a copy: a connection that closes takes itself out of the map.
void Shard::Drain() {
  draining_ = true;
  std::vector<Connection*> all;
  for (const auto& [connection, owned] : connections_) all.push_back(connection);
  for (Connection* connection : all) connection->Drain();
  CheckEmpty();
}

void Shard::AbortAll() {
  std::vector<Connection*> all;
  for (const auto& [connection, owned] : connections_) all.push_back(connection);
  for (Connection* connection : all) connection->Abort();
}

ServerOptions::ErrorBody Shard::RenderError(int status, std::string_view reason) const {
  if (options_.render_error) return options_.render_error(status, reason);
  return {"text/plain", std::string(reason) + "\n"};
}

}  // namespace hayate::http
