#include "gateway/state.h"

#include <utility>

#include "gateway/lane.h"

namespace hayate::gateway {

void Bell::Ring() {
  {
    std::lock_guard lock(mutex_);
    ringing_ = true;
  }
  rung_.notify_one();
}

void Bell::WaitFor(std::chrono::nanoseconds longest) {
  std::unique_lock lock(mutex_);
  rung_.wait_for(lock, longest, [this] { return ringing_; });
  ringing_ = false;
}

State::State(const GatewayOptions& gateway_options, obs::Registry& metrics_registry)
    : options(gateway_options),
      registry(metrics_registry),
      metrics(metrics_registry),
      router(gateway_options.router),
      admission(gateway_options.admission),
      waiting_room(gateway_options.admission.max_queued) {
  SetKeys(gateway_options.keys);
}

void State::Start(const std::vector<Admission::Ticket>& tickets) {
  for (const Admission::Ticket ticket : tickets) {
    Waiter waiter{};
    {
      std::lock_guard lock(mutex);
      const auto it = waiters.find(ticket);
      if (it == waiters.end()) continue;
      waiter = it->second;
      waiters.erase(it);
    }
    waiter.lane->PostAdmitted(waiter.exchange);
  }
}

void State::WakeWaiting(int64_t now_ns) {
  std::vector<std::pair<WaitingRoom::Ticket, Waiter>> called;
  {
    std::lock_guard lock(mutex);
    if (waiting_room.size() == 0) return;
    std::vector<WaitingRoom::Ticket> woken;
    waiting_room.Wake([&](const WaitingRoom::Pool& pool) { return router.Room(pool, now_ns); },
                      woken);
    for (const WaitingRoom::Ticket ticket : woken) called.emplace_back(ticket, waiting.at(ticket));
  }
  for (const auto& [ticket, waiter] : called) {
    if (waiter.lane->PostWorkerThere(waiter.exchange)) continue;
    std::lock_guard lock(mutex);  // its mailbox is full: the next tick calls it again
    if (waiting.contains(ticket)) waiting_room.WaitAgain(ticket);
  }
}

void State::SetKeys(std::vector<ApiKey> new_keys) {
  auto table = std::make_shared<KeyTable>();
  table->keys = std::move(new_keys);
  std::lock_guard lock(mutex);
  for (const ApiKey& key : table->keys) {
    const auto [place, fresh] =
        key_places.emplace(key.id, static_cast<Admission::Key>(key_places.size()));
    admission.SetKeyLimits(place->second, key.limits);
    table->places.push_back(place->second);
  }
  keys = std::move(table);
}

std::shared_ptr<const KeyTable> State::Keys() {
  std::lock_guard lock(mutex);
  return keys;
}

}  // namespace hayate::gateway
