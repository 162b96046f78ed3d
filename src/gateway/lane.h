#pragma once
// One IoThread's share of the gateway: the requests that it proxies and its connections to the
// workers. Owner: that thread, except where said.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "gateway/exchange.h"
#include "gateway/state.h"
#include "http/client.h"
#include "http/event_loop.h"
#include "http/io_thread.h"

namespace hayate::gateway {

class Lane final : public http::Watcher {
 public:
  Lane(State& state, http::IoThread& thread, uint64_t seed);
  // On its thread, or after that has stopped.
  ~Lane() override;

  // Takes the request over, until its answer is complete.
  void Proxy(http::Request& request, http::ResponseWriter writer, const Route& route);

  // Any thread.
  void PostAdmitted(uint64_t exchange);
  void PostQueueTimeout(uint64_t exchange);
  // False when its mailbox is full.
  bool PostWorkerThere(uint64_t exchange);
  // Drops connections to workers that are gone.
  void PostSweep();
  // Ends every request at once.
  void AbandonAll();

  // For Exchange.
  State& state() { return state_; }
  http::EventLoop& loop() { return thread_.loop(); }
  Rng& rng() { return rng_; }
  int64_t now_ns() { return loop().now_ns(); }
  // Connections to the worker; null when its address is unknown (removed meanwhile).
  http::Client* ClientFor(WorkerId worker, const std::shared_ptr<const Target>& target);
  // The exchange is over; freed at the end of the turn.
  void Remove(uint64_t exchange);
  std::string NewRequestId(std::string_view prefix);
  // Counts a request that could be hedged, and takes what one hedge costs from the lane's budget;
  // false when that is spent.
  void EarnHedge();
  bool SpendHedge();

  void OnEvents(uint32_t) override {}
  void OnTurnEnd() override;

 private:
  struct Pool {
    std::shared_ptr<const Target> target;
    std::unique_ptr<http::Client> client;
  };
  void Sweep();

  State& state_;
  http::IoThread& thread_;
  Rng rng_;
  uint64_t next_exchange_ = 1;
  double hedge_budget_ = 1.0;  // hedges that may begin
  std::map<WorkerId, Pool> pools_;
  std::vector<Pool> retired_pools_;  // of old addresses, until their requests are over
  std::unordered_map<uint64_t, std::unique_ptr<Exchange>> exchanges_;
  std::vector<std::unique_ptr<Exchange>> dead_;
};

}  // namespace hayate::gateway
