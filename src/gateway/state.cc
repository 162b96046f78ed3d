#include "gateway/state.h"

#include "gateway/lane.h"

namespace hayate::gateway {

State::State(const GatewayOptions& gateway_options, obs::Registry& metrics_registry)
    : options(gateway_options),
      registry(metrics_registry),
      metrics(metrics_registry),
      router(gateway_options.router),
      admission(gateway_options.admission) {
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
