#pragma once
// The fleet and the choice of a worker: states, health, breakers, loads and policies in one pure,
// deterministic object. It opens no socket and reads no clock; the proxy and the prober feed it.
// Owner: whoever holds the gateway's lock.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gateway/circuit_breaker.h"
#include "gateway/health.h"
#include "gateway/outlier.h"
#include "gateway/policy.h"
#include "gateway/retry.h"
#include "gateway/waiting_room.h"
#include "gateway/worker.h"

namespace hayate::gateway {

struct RouterOptions {
  PolicyOptions policy;
  std::string prefill_policy;  // empty: as `policy`
  std::string decode_policy;   // empty: power_of_two: its cache holds nothing to find
  CircuitBreaker::Options breaker;
  Health::Options health;
  OutlierScore::Options outlier;
  int64_t busy_avoid_ns = 1'000'000'000;   // after a 429 others are asked first, this long
  int64_t suspect_ns = 1'000'000'000;      // the longest that a broken connection's probe may take
  int64_t load_valid_ns = 30'000'000'000;  // a reported load older than this says nothing
  int64_t max_workers = 4096;
  int64_t cache_read_ns = 250'000'000;  // between two looks at what a worker tells; 0: never
  // Each data-parallel rank of a process is a worker of its own: ranks share no cache.
  bool dp_aware = false;
};

struct RouteRequest {
  std::string_view model;  // as the client wrote it; empty: any
  WorkerRole role = WorkerRole::kRegular;
  RouteKey key;
  std::span<const WorkerId> tried = {};  // taken again only when no other is left
};

// A request that is under way at a worker. Give it back to Finish exactly once.
struct Lease {
  WorkerId worker{0};
  std::shared_ptr<const WorkerSpec> spec;
  int64_t prompt_tokens = 0;  // still counted
  int64_t output_tokens = 0;
  bool others_left = false;  // another untried worker could have taken it
  CircuitBreaker::Pass pass = CircuitBreaker::Pass::kFree;
  uint32_t num_breaks = 0;  // of the worker's, when it began
};

enum class PickFailure : uint8_t {
  kUnknownModel,  // no worker serves it, though some are known
  kNoWorker,      // none is up
};

class Router {
 public:
  explicit Router(const RouterOptions& options);

  // The fleet. Add: kInvalidArgument for a bad URL, kResourceExhausted at max_workers; a URL that
  // is there already in that role gives its id back.
  Result<WorkerId> Add(const WorkerSpec& spec);
  // No new requests; gone when its last one ends. With it go the other ranks of its process.
  bool Drain(WorkerId id);
  // Forgotten at once; what runs there may still Finish.
  bool Remove(WorkerId id);
  // A probe that began before the worker's last broken connection says nothing; another is due.
  void OnProbe(WorkerId id, bool good, int64_t now_ns);
  void OnFacts(WorkerId id, const WorkerFacts& facts);
  void OnLoad(WorkerId id, const ReportedLoad& load);
  void OnCacheFlushed();
  // Workers that tell of their caches and are to be asked now; each is due again after OnCacheRead,
  // or after `patience_ns` without.
  struct CacheRead {
    WorkerId id;
    std::shared_ptr<const WorkerSpec> spec;
    CacheCursor cursor;
  };
  std::vector<CacheRead> DueCacheReads(int64_t now_ns, int64_t patience_ns);
  // Without an answer it is asked again; what it told before still counts.
  void OnCacheRead(const CacheRead& read, const std::optional<CacheChanges>& changes,
                   int64_t now_ns);

  // Requests.
  struct Picked {
    std::optional<Lease> lease;
    PickFailure failure = PickFailure::kNoWorker;
    int64_t retry_after_s = 1;
    bool may_come = false;  // a worker is known that could serve it, once it is up
  };
  Picked Pick(const RouteRequest& request, int64_t now_ns);
  // The prompt is computed: it weighs on the worker no more.
  void OnFirstByte(Lease& lease);
  // All connections that a dying worker breaks are one failure of it: the first to be told. Until a
  // probe has looked at the worker it gets nothing. Returns whether that probe is due now.
  bool Finish(const Lease& lease, AttemptEnd end, int64_t now_ns);
  // How many requests that role could take now: breakers let some through one at a time.
  int64_t Room(std::string_view model, WorkerRole role, int64_t now_ns);
  // The same for one line of the waiting room.
  int64_t Room(const WaitingRoom::Pool& pool, int64_t now_ns);

  struct WorkerView {
    WorkerId id;
    std::shared_ptr<const WorkerSpec> spec;
    WorkerState state = WorkerState::kPending;
    CircuitBreaker::State breaker = CircuitBreaker::State::kClosed;
    WorkerFacts facts;
    ReportedLoad reported;
    WorkerRole role = WorkerRole::kRegular;
    int64_t requests = 0;
    int64_t tokens = 0;
    uint64_t total = 0;
    uint64_t faults = 0;
    uint64_t breaker_opened = 0;
    uint64_t ejected = 0;
  };
  std::vector<WorkerView> Workers() const;
  // Workers to be looked at now; each is due again after OnProbe, or after `patience_ns` without.
  struct Probe {
    WorkerId id;
    std::shared_ptr<const WorkerSpec> spec;
    bool up = false;
  };
  std::vector<Probe> DueProbes(int64_t now_ns, int64_t patience_ns);
  // Draining workers whose last request is over; they are forgotten.
  std::vector<WorkerId> Reap();
  std::optional<WorkerView> Find(WorkerId id) const;
  // By URL, or by NameOf.
  std::optional<WorkerView> FindUrl(std::string_view url) const;
  // Served model names, each once, of workers that are up.
  std::vector<std::string> Models() const;
  bool Ready() const;  // a request could be served: prefill and decode, or a regular worker
  bool pairs() const { return num_prefill_ > 0 || num_decode_ > 0; }
  size_t policy_bytes() const;

 private:
  struct Worker {
    WorkerId id;
    std::shared_ptr<const WorkerSpec> spec;
    std::string name;  // NameOf(spec)
    WorkerRole role = WorkerRole::kRegular;
    uint16_t slot = 0;
    bool draining = false;
    Health health;
    CircuitBreaker breaker;
    OutlierScore outlier;
    WorkerFacts facts;
    ReportedLoad reported;
    CacheCursor cache_cursor;
    int64_t next_cache_read_ns = 0;
    int64_t avoid_until_ns = 0;
    int64_t probing_until_ns = 0;  // a probe is under way
    bool lost = false;             // since it was last up: its process is another one
    uint32_t num_breaks = 0;       // connections broken or refused, each event once
    bool probe_at_once = false;    // a connection broke since the last probe began
    int64_t suspect_until_ns = 0;  // a connection broke; not yet looked at
    int64_t requests = 0;
    int64_t tokens = 0;
    uint64_t total = 0;
    uint64_t faults = 0;
    uint64_t ejected = 0;
  };

  static constexpr int64_t kMaxRanks = 1024;  // of one process

  Worker* Get(WorkerId id);
  const Worker* Get(WorkerId id) const;
  static WorkerState StateOf(const Worker& worker);
  static WorkerView ViewOf(const Worker& worker);
  bool Serves(const Worker& worker, std::string_view model) const;
  Policy& PolicyFor(WorkerRole role, std::string_view pool);
  void CountRoles();
  void ForgetCache(Worker& worker);
  WorkerId Place(const WorkerSpec& spec);
  void SplitRanks(Worker& worker);
  void JudgeOutliers(Worker& worker, int64_t now_ns);
  Candidate CandidateOf(const Worker& worker, int64_t now_ns) const;

  // How far down the list of preferences a set of candidates was found.
  enum class Filter : uint8_t { kBest, kBusyToo, kEjectedToo, kTriedToo };
  bool Passes(Worker& worker, const RouteRequest& request, Filter filter, int64_t now_ns) const;

  RouterOptions options_;
  uint32_t next_id_ = 1;
  std::vector<std::unique_ptr<Worker>> workers_;  // by id
  std::vector<bool> slots_;                       // taken
  // By role and first model name of the pool.
  std::map<std::pair<WorkerRole, std::string>, std::unique_ptr<Policy>, std::less<>> policies_;
  size_t num_prefill_ = 0;
  size_t num_decode_ = 0;
  std::vector<Candidate> candidates_;  // of the pick in hand
};

}  // namespace hayate::gateway
