#pragma once
// The exchanges of one http thread. Events from the engine and prompts from the text pool reach
// them through here: other threads put values into queues and signal, this thread drains.
//
//   text pool ── PushPrepared ──┐
//   engine ──── Outbox ─────────┴─ Wakeup ──▶ Drain(): exchanges, bytes

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/generation_exchange.h"
#include "base/rng.h"
#include "engine/client.h"
#include "http/io_thread.h"

namespace hayate::api {

class ExchangeTable {
 public:
  ExchangeTable(http::IoThread& thread, uint64_t seed);
  // On the table's thread, or after it stopped.
  ~ExchangeTable();

  // Set once, before the first exchange.
  void SetOutbox(engine::Outbox& outbox) { outbox_ = &outbox; }
  // Any thread: something waits.
  void Signal() { wakeup_.Signal(); }

  // Keeps the exchange until it is complete or its client is gone. Its key is for PushPrepared.
  uint64_t Add(std::unique_ptr<GenerationExchange> exchange);
  GenerationExchange* Find(uint64_t key);
  void Remove(uint64_t key);

  // 24 hexadecimal digits, new each time: an id for an answer whose client named none.
  std::string MakeId();
  uint64_t MakeSeed() { return rng_.NextU64(); }
  Rng& rng() { return rng_; }

  // Any thread: runs `task` on the table's thread, or drops it there once the server stops. Never
  // refused: the bound is that of the pool whose tasks call it.
  void Post(std::function<void()> task);

  // Any thread: what exchange `key` sends to the engine, or why there is nothing.
  void PushPrepared(uint64_t key, Result<PreparedGeneration> prepared);

 private:
  struct Prepared {
    uint64_t key;
    Result<PreparedGeneration> prepared;
  };
  void Drain();
  void RunPosted();
  void StartPrepared();
  void DeliverEvents();

  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<GenerationExchange>> exchanges_;
  std::unordered_map<RequestId, std::pair<uint64_t, size_t>> choices_;  // exchange key, choice
  std::unordered_map<uint64_t, std::vector<RequestId>> requests_;       // by exchange
  engine::Outbox* outbox_ = nullptr;
  std::vector<TokenEvent> events_;
  std::vector<uint64_t> touched_;
  Rng rng_;  // seeds and ids

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Prepared> prepared_;  // at most one an exchange
  std::vector<std::function<void()>> posted_;
  http::Wakeup wakeup_;
};

}  // namespace hayate::api
