#pragma once
// The engine as the rest of the process sees it: everything above (api, app) includes this header
// (and the outbox that it names). Any thread.

#include <atomic>
#include <cstdint>
#include <future>

#include "base/status.h"
#include "core/request.h"
#include "engine/cache_journal.h"
#include "engine/load.h"
#include "engine/outbox.h"
#include "engine/pause_mode.h"
#include "engine/weight_update.h"

namespace hayate::engine {

class Engine;
class Inbox;

class Client {
 public:
  // Both outlive the client.
  Client(Inbox& inbox, const Engine& engine) : inbox_(inbox), engine_(engine) {}

  // Unique for the life of the process.
  RequestId NewId() { return {next_id_.fetch_add(1, std::memory_order_relaxed)}; }

  // Hands the request over. Its events arrive in outbox `request.outbox`; the last one carries
  // `finish`. kResourceExhausted when the queue is full, kUnavailable when shutting down or failed:
  // then no event follows.
  Status Submit(Request request);
  // The request ends with kAbort, unless it has ended already. Any state, any number of times.
  void Cancel(RequestId id);
  // The same, but the answer counts as finished: its reader has found the end in its text.
  void Complete(RequestId id);
  void CancelAll();
  // Ready once the engine has flushed, or refused because requests run.
  std::future<Status> FlushCache();

  // Until Continue nothing is computed; requests are taken and wait. Ready once no step is in
  // flight. Also while paused: the last mode counts.
  std::future<Status> Pause(PauseMode mode);
  std::future<Status> Continue();
  // Ready once the new weights serve, or are refused.
  std::future<Status> UpdateWeights(WeightUpdate update);

  EngineLoad load() const;
  // What is cached; null when nobody is told.
  const CacheJournal* cache_journal() const;
  // The engine's clock, for Request::deadline_ns.
  int64_t NowNs() const;
  bool failed() const;

 private:
  Inbox& inbox_;
  const Engine& engine_;
  std::atomic<uint64_t> next_id_{1};  // a lone counter: relaxed
};

}  // namespace hayate::engine
