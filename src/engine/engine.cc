#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace hayate::engine {

Engine::Engine(Parts parts)
    : parts_(std::move(parts)),
      total_tokens_(int64_t{parts_.cache->counts(0).usable} * parts_.cache->page_tokens()),
      events_(parts_.outboxes.size()) {
  parts_.metrics->max_total_tokens.Set(static_cast<double>(total_tokens_));
  parts_.metrics->page_size.Set(parts_.cache->page_tokens());
  parts_.metrics->num_pages.Set(parts_.cache->counts(0).usable);
  PublishGauges();
}

Engine::~Engine() {
  if (thread_.joinable()) Stop(0);
}

void Engine::Start() {
  thread_ = NamedThread("engine", [this] { Main(); });
}

void Engine::Stop(int64_t drain_ns) {
  drain_until_ns_.store(parts_.clock->NowNs() + drain_ns, std::memory_order_release);
  parts_.inbox->Close();
  thread_.Join();
}

void Engine::Main() {
  for (;;) {
    // Read before the turn: whatever passed the gate before it closed is drained by this turn.
    const bool closed = parts_.inbox->closed();
    if (Turn()) continue;
    if (closed && parts_.scheduler->idle() && num_in_flight_ == 0) return;
    const int64_t deadline = parts_.scheduler->next_deadline_ns();
    if (deadline == kNoDeadline) {
      parts_.inbox->Wait(std::nullopt);
    } else {
      parts_.inbox->Wait(std::max<int64_t>(0, deadline - parts_.clock->NowNs()));
    }
  }
}

bool Engine::Turn() {
  DrainInbox();
  ExpireDeadlines();
  const bool had_mail = !batch_.empty();
  const bool planned = !paused_ && PlanAndSubmit();
  const bool waited =
      num_in_flight_ == StepExecutor::kMaxInFlight || (num_in_flight_ > 0 && !planned);
  if (waited) CommitOldest();
  SettlePauses();
  FlushCacheWhenAsked();
  FlushEvents();
  const bool updated = SettleUpdate();
  using Patience = CacheJournal::Patience;
  TellCache(planned || waited ? Patience::kNone : Patience::kWait);
  if (planned || waited || had_mail || updated) PublishGauges();
  rested_ = rested_ || !(planned || waited);
  return planned || waited || updated;
}

void Engine::TellCache(CacheJournal::Patience patience) {
  if (parts_.journal == nullptr) return;
  parts_.cache->TakeNameChanges(name_changes_);
  parts_.journal->Append(name_changes_, patience);
}

void Engine::DrainInbox() {
  parts_.inbox->Drain(batch_);
  for (Request& request : batch_.requests) Accept(std::move(request));
  for (const Cancel& cancel : batch_.cancels) {
    sched::Sequence* sequence = parts_.scheduler->Find(cancel.id);
    if (sequence == nullptr) continue;
    if (cancel.reason == CancelReason::kComplete) {
      Complete(*sequence);
    } else {
      Abort(*sequence, Status(ErrorCode::kCancelled, "cancelled"));
    }
  }
  if (batch_.abort_all) AbortEverything(Status(ErrorCode::kCancelled, "all requests were aborted"));
  TakePauses();
  TakeUpdates();
  for (auto& flush : batch_.flushes) flushes_.push_back(std::move(flush));
  const int64_t drain_until = drain_until_ns_.load(std::memory_order_acquire);
  if (drain_until >= 0) paused_ = false;  // what waits is to finish
  if (drain_until >= 0 && parts_.clock->NowNs() >= drain_until) {
    AbortEverything(Status(ErrorCode::kUnavailable, "the server is shutting down"));
  }
}

void Engine::Accept(Request request) {
  Status status = parts_.scheduler->Validate(request);
  if (failed()) status = Status(ErrorCode::kUnavailable, "the device has failed");
  const sched::SchedulerStats stats = parts_.scheduler->stats();
  // What arrives in one turn has not been admitted yet: free slots are room too.
  if (status.ok() && stats.num_waiting >= parts_.max_queued + stats.num_free_slots) {
    status = Error(ErrorCode::kResourceExhausted,
                   "{} requests are waiting already; try again later", parts_.max_queued);
  }
  if (!status.ok()) {
    Emit(request.outbox, {.id = request.id, .finish = FinishReason::kAbort, .status = status});
    return;
  }
  if (request.grammar != nullptr) {
    parts_.metrics->structured_requests.Increment();
    grammars_.emplace(request.id, GrammarState(request.grammar, *parts_.clock, mask_cache_));
  }
  parts_.scheduler->Add(std::move(request));
}

void Engine::ExpireDeadlines() {
  const int64_t now_ns = parts_.clock->NowNs();
  while (sched::Sequence* sequence = parts_.scheduler->NextExpired(now_ns)) {
    Abort(*sequence, Status(ErrorCode::kDeadlineExceeded, "the request's deadline has passed"));
  }
}

bool Engine::PlanAndSubmit() {
  if (num_in_flight_ == StepExecutor::kMaxInFlight || !DraftForPlan()) return false;
  InFlightStep& step =
      in_flight_[(oldest_ + static_cast<size_t>(num_in_flight_)) % in_flight_.size()];
  const int64_t begin_ns = parts_.clock->NowNs();
  if (!parts_.scheduler->Plan(step.plan)) return false;
  step.owners.clear();
  for (const StepRow& row : step.plan.rows) {
    step.owners.push_back(parts_.scheduler->InSlot(row.slot)->request.id);
  }
  PrepareMasks(step);
  step.submitted_ns = parts_.clock->NowNs();
  step.plan_ns = step.submitted_ns - begin_ns;
  step.after_rest = std::exchange(rested_, false);
  parts_.executor->Submit(step.plan);
  parts_.scheduler->Submitted(step.plan);
  ++num_in_flight_;
  if (num_in_flight_ == 1) PublishMasks();
  return true;
}

bool Engine::DraftForPlan() {
  Drafting* const drafting = parts_.drafting;
  if (drafting == nullptr) return true;
  drafting->Update(*parts_.scheduler, grammars_);
  if (num_in_flight_ > 0 && drafting->ShouldWait(*parts_.scheduler)) return false;
  drafting->Propose(*parts_.scheduler, grammars_);
  return true;
}

void Engine::CommitOldest() {
  InFlightStep& step = in_flight_[oldest_];
  const int64_t begin_ns = parts_.clock->NowNs();
  StepResult& result = parts_.executor->WaitOldest();
  const int64_t waited_ns = parts_.clock->NowNs();
  CHECK_EQ(result.step, step.plan.step);
  oldest_ = (oldest_ + 1) % in_flight_.size();
  --num_in_flight_;
  parts_.scheduler->Retired(result.step);
  if (!result.status.ok()) {
    LOG_ERROR("step {} failed: {}", result.step, result.status.ToString());
    failed_.store(true, std::memory_order_release);
    AbortEverything(result.status);
    PublishMasks();
    return;
  }
  CHECK_EQ(result.rows.size(), step.plan.rows.size());
  parts_.scheduler->Took(step.plan, result.device_ns);
  for (size_t i = 0; i < result.rows.size(); ++i) {
    CommitRow(step.plan.rows[i], step.owners[i], result.rows[i]);
  }
  PublishMasks();
  ObserveStep(step, result, waited_ns - begin_ns, parts_.clock->NowNs() - waited_ns);
}

void Engine::AbortEverything(const Status& status) {
  while (sched::Sequence* sequence = parts_.scheduler->Any()) Abort(*sequence, status);
}

void Engine::Emit(int32_t outbox, TokenEvent event) {
  CHECK_LT(static_cast<size_t>(outbox), events_.size());
  events_[static_cast<size_t>(outbox)].push_back(std::move(event));
}

void Engine::FlushEvents() {
  refused_.clear();
  for (size_t i = 0; i < events_.size(); ++i) parts_.outboxes[i]->Push(events_[i], refused_);
  for (const RequestId id : refused_) {
    sched::Sequence* sequence = parts_.scheduler->Find(id);
    if (sequence == nullptr) continue;
    Abort(*sequence, Status(ErrorCode::kResourceExhausted, "the client reads too slowly"));
  }
  // The final events of those aborts always fit.
  if (refused_.empty()) return;
  refused_.clear();
  for (size_t i = 0; i < events_.size(); ++i) parts_.outboxes[i]->Push(events_[i], refused_);
}

void Engine::TakePauses() {
  for (PauseCommand& command : batch_.pauses) {
    paused_ = command.mode.has_value();
    if (!paused_) {
      for (PauseCommand& pause : pauses_) {
        pause.done.set_value(Status(ErrorCode::kCancelled, "generation was continued meanwhile"));
      }
      pauses_.clear();
      command.done.set_value(OkStatus());
      continue;
    }
    if (command.mode == PauseMode::kAbort) {
      AbortEverything(Status(ErrorCode::kCancelled, "generation was paused"));
    }
    pauses_.push_back(std::move(command));
  }
}

void Engine::SettlePauses() {
  if (pauses_.empty() || num_in_flight_ > 0) return;
  for (PauseCommand& pause : pauses_) {
    if (pause.mode == PauseMode::kRetract) parts_.scheduler->RetractAll();
    pause.done.set_value(OkStatus());
  }
  pauses_.clear();
}

void Engine::TakeUpdates() {
  for (WeightUpdateCommand& command : batch_.updates) {
    if (update_) {
      command.done.set_value(
          Status(ErrorCode::kUnavailable, "another update of the weights is under way"));
      continue;
    }
    if (command.update.abort_all) {
      AbortEverything(Status(ErrorCode::kCancelled, "the weights are updated"));
    }
    update_ = std::move(command);
    parts_.scheduler->SetIntake(sched::Scheduler::Intake::kBegunOnly);
  }
}

bool Engine::SettleUpdate() {
  if (!update_ || num_in_flight_ > 0) return false;
  const bool draining = drain_until_ns_.load(std::memory_order_acquire) >= 0;
  if (!draining && !failed() && !paused_ && parts_.scheduler->AnyBegun()) return false;
  const bool keeps_pages = parts_.scheduler->stats().num_running > 0;
  Status status;
  if (draining) {
    status = Status(ErrorCode::kUnavailable, "the server is shutting down");
  } else if (failed()) {
    status = Status(ErrorCode::kUnavailable, "the device has failed");
  } else if (keeps_pages && update_->update.flush_cache) {
    status = InvalidField("flush_cache",
                          "requests are paused in place and keep what they cached; pause with "
                          "abort or retract, or keep the cache");
  } else {
    status = update_->update.apply();
    if (status.ok() && update_->update.flush_cache) parts_.cache->Flush();
  }
  parts_.scheduler->SetIntake(sched::Scheduler::Intake::kOpen);
  update_->done.set_value(std::move(status));
  update_.reset();
  return true;
}

void Engine::FlushCacheWhenAsked() {
  if (flushes_.empty()) return;
  // What only waits holds no pages.
  const bool resting =
      parts_.scheduler->idle() || (paused_ && parts_.scheduler->stats().num_running == 0);
  const bool idle = resting && num_in_flight_ == 0;
  if (idle) parts_.cache->Flush();
  for (auto& flush : flushes_) {
    flush.set_value(idle ? OkStatus()
                         : Status(ErrorCode::kUnavailable,
                                  "requests are running; flush the cache when the server is idle"));
  }
  flushes_.clear();
}

EngineLoad Engine::load() const {
  return {.num_running = num_running_.load(std::memory_order_relaxed),
          .num_waiting = num_waiting_.load(std::memory_order_relaxed),
          .num_free_slots = num_free_slots_.load(std::memory_order_relaxed),
          .used_tokens = used_tokens_.load(std::memory_order_relaxed),
          .total_tokens = total_tokens_,
          .evictable_tokens = evictable_tokens_.load(std::memory_order_relaxed),
          .gen_throughput = gen_throughput_.load(std::memory_order_relaxed),
          .cache_hit_rate = cache_hit_rate_.load(std::memory_order_relaxed),
          .paused = paused_shown_.load(std::memory_order_relaxed)};
}

}  // namespace hayate::engine
