#include "api/exchange_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace hayate::api {

ExchangeTable::ExchangeTable(http::IoThread& thread, uint64_t seed)
    : rng_(seed), wakeup_(thread, [this] { Drain(); }) {}

ExchangeTable::~ExchangeTable() = default;

uint64_t ExchangeTable::Add(std::unique_ptr<GenerationExchange> exchange) {
  const uint64_t key = next_key_++;
  exchange->writer().OnClose([this, key] {
    const GenerationExchange* gone = Find(key);
    if (gone != nullptr && !gone->detached()) Remove(key);
  });
  exchanges_.emplace(key, std::move(exchange));
  return key;
}

GenerationExchange* ExchangeTable::Find(uint64_t key) {
  const auto it = exchanges_.find(key);
  return it == exchanges_.end() ? nullptr : it->second.get();
}

void ExchangeTable::Remove(uint64_t key) {
  if (const auto it = requests_.find(key); it != requests_.end()) {
    for (const RequestId id : it->second) choices_.erase(id);
    requests_.erase(it);
  }
  exchanges_.erase(key);
}

void ExchangeTable::PushPrepared(uint64_t key, Result<PreparedGeneration> prepared) {
  {
    std::lock_guard lock(mutex_);
    prepared_.push_back({key, std::move(prepared)});
  }
  wakeup_.Signal();
}

std::string ExchangeTable::MakeId() {
  return fmt::format("{:016x}{:08x}", rng_.NextU64(), rng_.NextU32());
}

void ExchangeTable::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  wakeup_.Signal();
}

void ExchangeTable::Drain() {
  RunPosted();
  StartPrepared();
  DeliverEvents();
}

void ExchangeTable::RunPosted() {
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& task : posted) task();
}

void ExchangeTable::StartPrepared() {
  std::vector<Prepared> prepared;
  {
    std::lock_guard lock(mutex_);
    prepared.swap(prepared_);
  }
  for (Prepared& item : prepared) {
    GenerationExchange* exchange = Find(item.key);
    if (exchange == nullptr) continue;  // the client left meanwhile
    if (!item.prepared.ok()) {
      exchange->Fail(item.prepared.status());
      Remove(item.key);
      continue;
    }
    const bool started =
        exchange->Start(std::move(item.prepared).value(), rng_, [&](RequestId id, size_t choice) {
          choices_.emplace(id, std::pair(item.key, choice));
          requests_[item.key].push_back(id);
        });
    if (!started) Remove(item.key);
  }
}

void ExchangeTable::DeliverEvents() {
  if (outbox_ == nullptr) return;
  outbox_->Drain(events_);
  touched_.clear();
  for (TokenEvent& event : events_) {
    const auto it = choices_.find(event.id);
    if (it == choices_.end()) continue;
    const auto [key, choice] = it->second;
    if (event.finish) choices_.erase(it);
    if (GenerationExchange* exchange = Find(key)) {
      exchange->OnEvent(choice, event);
      touched_.push_back(key);
    }
  }
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  for (const uint64_t key : touched_) {
    GenerationExchange* exchange = Find(key);
    if (exchange != nullptr && exchange->Flush()) Remove(key);
  }
}

}  // namespace hayate::api
