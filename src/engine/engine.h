#pragma once
// The engine: takes requests from the inbox, drives scheduler and executor one step ahead of the
// results, commits tokens, and sends events to the outboxes. README.md beside this is the contract.
//
//   plan k+1 │ submit k+1 │ wait k │ commit k → events │ plan k+2 …
//
// Start() runs Turn() on a thread of its own; tests call Turn() themselves under a virtual clock.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/step_executor.h"
#include "core/token_event.h"
#include "engine/cache_journal.h"
#include "engine/drafting.h"
#include "engine/grammar_state.h"
#include "engine/inbox.h"
#include "engine/load.h"
#include "engine/metrics.h"
#include "engine/outbox.h"
#include "engine/pool_metrics.h"
#include "obs/step_log.h"
#include "sched/scheduler.h"

namespace hayate::engine {

class Engine {
 public:
  // Everything that an engine works with, built by the composition root; all outlive the engine.
  struct Parts {
    sched::Scheduler* scheduler;
    kv::KvCaches* cache;
    StepExecutor* executor;
    Inbox* inbox;
    std::vector<Outbox*> outboxes;  // Request::outbox indexes it
    const Clock* clock;
    EngineMetrics* metrics;
    obs::StepLog* step_log;
    Drafting* drafting = nullptr;     // null: no speculation
    CacheJournal* journal = nullptr;  // null: nobody is told what is cached
    PoolMetrics* pools = nullptr;     // null: `metrics` shows the first pool alone
    int32_t max_queued = 0;  // waiting requests beyond the free slots; more are refused with
                             // kResourceExhausted
  };
  explicit Engine(Parts parts);
  ~Engine();

  // Starts the engine thread.
  void Start();
  // Refuses new requests, lets what runs finish for at most `drain_ns`, aborts the rest, joins.
  void Stop(int64_t drain_ns);

  // One turn of the loop: drain the inbox, plan and submit, wait for and commit a result. Returns
  // false when there was nothing to do. Engine thread, or a test in its place.
  bool Turn();

  // Any thread, from here on.
  EngineLoad load() const;
  int64_t NowNs() const { return parts_.clock->NowNs(); }
  // Null when nobody is told what is cached.
  const CacheJournal* cache_journal() const { return parts_.journal; }
  // True once the device has failed: every request was answered, nothing runs any more.
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  // 4,096 masks of 128K tokens.
  static constexpr size_t kMaskCacheBytes = size_t{64} << 20;

  struct InFlightStep {
    StepPlan plan;
    std::vector<RequestId> owners;  // of the plan's rows
    // The plan's masks, reused from step to step.
    std::shared_ptr<TokenMasks> masks = std::make_shared<TokenMasks>();
    int64_t submitted_ns = 0;
    int64_t plan_ns = 0;
    bool after_rest = false;  // nothing was to do before it
  };

  void Main();
  void DrainInbox();
  void Accept(Request request);
  void ExpireDeadlines();
  bool PlanAndSubmit();
  // Gives the sequences their drafts; false: the plan comes after the steps in flight.
  bool DraftForPlan();
  void CommitOldest();
  // Sizes the masks of a plan that is about to be submitted.
  void PrepareMasks(InFlightStep& step);
  // Every token before the oldest step in flight is known: its masks can be written, if it has any.
  void PublishMasks();
  // Follows a committed token: whether the text is complete, or what is wrong with it.
  struct GrammarVerdict {
    bool finished = false;
    Status error;
  };
  GrammarVerdict AdvanceGrammar(RequestId id, TokenId token);
  void CommitRow(const StepRow& row, RequestId owner, RowResult& result);
  void Abort(sched::Sequence& sequence, Status status);
  // An end that its reader found: a finished request, whose events nobody waits for.
  void Complete(sched::Sequence& sequence);
  void Finish(sched::Sequence& sequence);
  void AbortEverything(const Status& status);
  void Emit(int32_t outbox, TokenEvent event);
  void FlushEvents();
  void FlushCacheWhenAsked();
  void TellCache(CacheJournal::Patience patience);
  void TakePauses();
  // Fulfils the pauses that wait for the steps in flight.
  void SettlePauses();
  void TakeUpdates();
  // Changes the weights once that may be; true when it did, or failed to.
  bool SettleUpdate();
  void ObservePrompt(const sched::Sequence& sequence);
  // `interval_ns` is the token's share of the time since the row before.
  void ObserveToken(sched::Sequence& sequence, int64_t interval_ns);
  TokenEvent EventOf(const sched::Sequence& sequence) const;
  void Forget(RequestId id);
  void ObserveStep(const InFlightStep& step, const StepResult& result, int64_t wait_ns,
                   int64_t commit_ns);
  void PublishGauges();

  Parts parts_;
  const int64_t total_tokens_;  // of the pool
  InboxBatch batch_;
  std::array<InFlightStep, StepExecutor::kMaxInFlight> in_flight_;
  size_t oldest_ = 0;  // index into in_flight_
  int num_in_flight_ = 0;
  bool rested_ = true;  // the turn before found nothing to do
  int64_t device_end_ns_ = 0;
  grammar::MaskCache mask_cache_{kMaskCacheBytes};
  // Of the sequences under a grammar, from their arrival to their end.
  GrammarStates grammars_;
  std::vector<std::vector<TokenEvent>> events_;  // per outbox, gathered during a turn
  std::vector<RequestId> refused_;
  std::vector<PrefixKeyChange> name_changes_;  // not yet in the journal
  std::vector<std::promise<Status>> flushes_;
  bool paused_ = false;
  std::vector<PauseCommand> pauses_;  // not yet fulfilled
  std::optional<WeightUpdateCommand> update_;

  // Relaxed stores by the engine thread, relaxed loads anywhere: lone numbers.
  std::atomic<int32_t> num_running_{0};
  std::atomic<int32_t> num_waiting_{0};
  std::atomic<int32_t> num_free_slots_{0};
  std::atomic<int64_t> used_tokens_{0};
  std::atomic<int64_t> evictable_tokens_{0};
  std::atomic<double> gen_throughput_{0.0};
  std::atomic<double> cache_hit_rate_{0.0};
  std::atomic<bool> paused_shown_{false};
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> drain_until_ns_{-1};  // −1: not stopping; set before the inbox closes
  uint64_t seen_retractions_ = 0;
  uint64_t seen_evicted_pages_ = 0;
  int64_t throughput_since_ns_ = 0;
  int64_t throughput_tokens_ = 0;
  NamedThread thread_;
};

}  // namespace hayate::engine
