#pragma once
// Looks at the workers: resolves their names, asks for their health, for what they are, and for
// their load. Also does what comes by time alone: queue deadlines, reaping of drained workers, the
// access log. Blocking calls run on a small pool; results go into the State.

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "base/thread_pool.h"
#include "gateway/state.h"

namespace hayate::gateway {

class Lane;

class Prober {
 public:
  Prober(State& state, const Clock& clock, std::vector<Lane*> lanes);
  // Finishes the probes under way and joins.
  ~Prober();

 private:
  static constexpr int kProbeThreads = 8;
  static constexpr size_t kMaxWaitingProbes = 8192;

  void Run();
  void Tick();
  void ExpireQueue(int64_t now_ns);
  void Probe(const Router::Probe& probe);
  std::shared_ptr<const Target> Resolve(const Router::Probe& probe);
  bool AskHealth(const Router::Probe& probe, const Target& target);
  void AskFacts(const Router::Probe& probe, const Target& target);
  void AskLoad(const Router::Probe& probe, const Target& target);
  void AskCache(const Router::CacheRead& read);

  State& state_;
  const Clock& clock_;
  std::vector<Lane*> lanes_;
  ThreadPool pool_;
  std::atomic<bool> stopping_{false};  // publishes nothing else
  int64_t next_load_ns_ = 0;
  int64_t next_sweep_ns_ = 0;
  NamedThread thread_;
};

}  // namespace hayate::gateway
