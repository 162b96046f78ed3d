#include "gateway/lane.h"

#include <algorithm>
#include <utility>

namespace hayate::gateway {

Lane::Lane(State& state, http::IoThread& thread, uint64_t seed)
    : state_(state), thread_(thread), rng_(seed) {}

Lane::~Lane() { AbandonAll(); }

void Lane::Proxy(http::Request& request, http::ResponseWriter writer, const Route& route) {
  const uint64_t id = next_exchange_++;
  auto exchange = std::make_unique<Exchange>(*this, id, request, std::move(writer), route);
  Exchange* raw = exchange.get();
  exchanges_.emplace(id, std::move(exchange));
  raw->Begin();
}

void Lane::PostAdmitted(uint64_t exchange) {
  thread_.TryPost([this, exchange] {
    if (const auto it = exchanges_.find(exchange); it != exchanges_.end()) it->second->OnAdmitted();
  });
}

void Lane::PostQueueTimeout(uint64_t exchange) {
  thread_.TryPost([this, exchange] {
    if (const auto it = exchanges_.find(exchange); it != exchanges_.end()) {
      it->second->OnQueueTimeout();
    }
  });
}

bool Lane::PostWorkerThere(uint64_t exchange) {
  return thread_.TryPost([this, exchange] {
    if (const auto it = exchanges_.find(exchange); it != exchanges_.end()) {
      it->second->OnWorkerThere();
    }
  });
}

void Lane::PostSweep() {
  thread_.TryPost([this] { Sweep(); });
}

void Lane::Sweep() {
  std::erase_if(retired_pools_, [](const Pool& pool) { return pool.client->num_active() == 0; });
  std::lock_guard lock(state_.mutex);
  std::erase_if(pools_, [this](const auto& pool) {
    return pool.second.client->num_active() == 0 && !state_.targets.contains(pool.first);
  });
}

void Lane::AbandonAll() {
  while (!exchanges_.empty()) {
    auto exchange = std::move(exchanges_.begin()->second);
    exchanges_.erase(exchanges_.begin());
    exchange->Abandon();
  }
  dead_.clear();
  pools_.clear();
  retired_pools_.clear();
}

http::Client* Lane::ClientFor(WorkerId worker, const std::shared_ptr<const Target>& target) {
  if (target == nullptr) return nullptr;
  Pool& pool = pools_[worker];
  if (pool.target == target) return pool.client.get();
  if (pool.client != nullptr) retired_pools_.push_back(std::move(pool));
  const GatewayOptions& options = state_.options;
  http::ClientOptions client{.connect_timeout = options.connect_timeout,
                             .head_timeout = options.request_timeout,
                             .read_timeout = options.stream_idle_timeout,
                             .max_idle_connections = options.max_idle_connections,
                             .tls = options.worker_tls};
  pools_[worker] = {
      target, std::make_unique<http::Client>(loop(), target->endpoint, target->address, client)};
  return pools_[worker].client.get();
}

void Lane::Remove(uint64_t exchange) {
  const auto it = exchanges_.find(exchange);
  if (it == exchanges_.end()) return;
  dead_.push_back(std::move(it->second));
  exchanges_.erase(it);
  loop().RequestTurnEnd(this);
}

void Lane::EarnHedge() {
  constexpr double kMaxSaved = 10.0;  // a burst of hedges after a quiet time
  hedge_budget_ = std::min(hedge_budget_ + state_.options.hedge.max_share, kMaxSaved);
}

bool Lane::SpendHedge() {
  if (hedge_budget_ < 1.0) return false;
  hedge_budget_ -= 1.0;
  return true;
}

void Lane::OnTurnEnd() {
  std::vector<std::unique_ptr<Exchange>> dead;
  dead.swap(dead_);
}

std::string Lane::NewRequestId(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id.push_back(kLetters[rng_.Below(kLetters.size())]);
  return id;
}

}  // namespace hayate::gateway
