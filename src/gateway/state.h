#pragma once
// What the gateway's threads share: the fleet, the limits and the counters, under one lock that is
// held for about a microsecond at a time, never across a system call.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gateway/access_log.h"
#include "gateway/metrics.h"
#include "gateway/options.h"
#include "gateway/waiting_room.h"
#include "http/endpoint.h"

namespace hayate::gateway {

class Lane;

// Where a worker listens, resolved. Immutable: a new address is a new object.
struct Target {
  http::Endpoint endpoint;
  http::SocketAddress address;
  std::string base_path;  // before every target, without a slash at its end
};

// The API keys of one moment; a reload replaces the whole.
struct KeyTable {
  std::vector<ApiKey> keys;
  std::vector<Admission::Key> places;  // of each key's limits: an id keeps its place over reloads
};

// Wakes the control thread before its next tick.
class Bell {
 public:
  void Ring();
  // Returns when it was rung, or `longest` has passed. One thread waits.
  void WaitFor(std::chrono::nanoseconds longest);

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  bool ringing_ = false;  // guarded by mutex_
};

struct State {
  State(const GatewayOptions& gateway_options, obs::Registry& metrics_registry);

  // Wakes queued requests on their own threads.
  void Start(const std::vector<Admission::Ticket>& tickets);
  // Wakes those in the waiting room for whom there is a worker.
  void WakeWaiting(int64_t now_ns);

  const GatewayOptions options;
  obs::Registry& registry;
  Metrics metrics;
  std::unique_ptr<AccessLog> access_log;
  std::atomic<bool> draining{false};  // publishes nothing else
  Bell control;                       // a worker is to be looked at now

  std::mutex mutex;
  // Guarded by mutex:
  Router router;
  Admission admission;
  std::map<WorkerId, std::shared_ptr<const Target>> targets;
  struct Waiter {
    Lane* lane;
    uint64_t exchange;
  };
  std::map<Admission::Ticket, Waiter> waiters;
  WaitingRoom waiting_room;
  std::map<WaitingRoom::Ticket, Waiter> waiting;
  std::shared_ptr<const KeyTable> keys;
  std::map<std::string, Admission::Key> key_places;

  // Replaces the keys; limits of ids that are known already start afresh.
  void SetKeys(std::vector<ApiKey> keys);
  std::shared_ptr<const KeyTable> Keys();
};

}  // namespace hayate::gateway
