// Engine: what a result changes. Tokens are appended, sequences end, events are made, metrics move.

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace hayate::engine {
namespace {

constexpr double kSecondsPerNs = 1e-9;
constexpr int64_t kThroughputPeriodNs = 1'000'000'000;

struct StopDecision {
  std::optional<FinishReason> finish;
  std::optional<TokenId> matched_stop;
};

// A stop token at the length limit reports kStop: the answer is complete.
StopDecision Decide(const sched::Sequence& sequence, TokenId token) {
  const SamplingParams& sampling = sequence.request.sampling;
  const auto& stops = sampling.stop_token_ids;
  if (!sampling.ignore_eos && sequence.num_generated() >= sampling.min_new_tokens &&
      std::find(stops.begin(), stops.end(), token) != stops.end()) {
    return {FinishReason::kStop, token};
  }
  if (sequence.num_generated() >= sampling.max_new_tokens) return {FinishReason::kLength, {}};
  return {};
}

}  // namespace

TokenEvent Engine::EventOf(const sched::Sequence& sequence) const {
  TokenEvent event;
  event.id = sequence.request.id;
  event.cached_tokens = sequence.cached_tokens;
  event.retractions = sequence.retractions;
  event.num_verifies = sequence.num_verifies;
  event.num_drafts = sequence.num_drafts;
  event.num_accepted_drafts = sequence.num_accepted_drafts;
  return event;
}

void Engine::CommitRow(const StepRow& row, RequestId owner, RowResult& result) {
  sched::Sequence* sequence = parts_.scheduler->Find(owner);
  if (sequence == nullptr) return;  // ended while the step was in flight
  const auto num_tokens = static_cast<int32_t>(result.tokens.size());
  if (row.num_drafts > 0 && num_tokens > 0) parts_.scheduler->Verified(*sequence, row, num_tokens);
  TokenEvent event = EventOf(*sequence);
  event.prompt_logprobs = std::move(result.prompt_logprobs);
  event.hidden = std::move(result.hidden);
  const int64_t interval_ns =
      (parts_.clock->NowNs() - sequence->last_token_ns) / std::max(1, num_tokens);
  StopDecision stop;
  Status error;
  for (size_t i = 0; i < result.tokens.size() && !stop.finish && error.ok(); ++i) {
    const TokenId token = result.tokens[i];
    parts_.scheduler->Append(*sequence, token);
    ObserveToken(*sequence, interval_ns);
    stop = Decide(*sequence, token);
    GrammarVerdict verdict = AdvanceGrammar(owner, token);
    error = std::move(verdict.error);
    if (!error.ok()) break;
    event.tokens.push_back(token);
    if (i < result.logprobs.size()) event.logprobs.push_back(std::move(result.logprobs[i]));
    if (verdict.finished && stop.finish != FinishReason::kStop) stop = {FinishReason::kStop, {}};
  }
  if (error.ok() && !stop.finish && result.bad_logits) {
    error = Status(ErrorCode::kInternal, "the model gave no finite logits for this request");
  }
  if (sequence->request.sampling.max_new_tokens == 0 && row.end == sequence->prompt_length()) {
    ObservePrompt(*sequence);
    stop.finish = FinishReason::kLength;
  }
  if (parts_.drafting != nullptr && num_tokens > 0) {
    parts_.drafting->Committed(*sequence, row, result);
  }
  const int32_t outbox = sequence->request.outbox;
  if (error.ok()) {
    event.finish = stop.finish;
    event.matched_stop = stop.matched_stop;
  }
  if (error.ok() && stop.finish) Finish(*sequence);
  if (event.finish || !event.tokens.empty() || !event.prompt_logprobs.empty() ||
      !event.hidden.empty()) {
    Emit(outbox, std::move(event));
  }
  if (!error.ok()) Abort(*sequence, std::move(error));
}

void Engine::Forget(RequestId id) {
  grammars_.erase(id);
  if (parts_.drafting != nullptr) parts_.drafting->Forget(id);
}

void Engine::Finish(sched::Sequence& sequence) {
  const int64_t now_ns = parts_.clock->NowNs();
  parts_.metrics->requests.Increment();
  parts_.metrics->generation_length.Observe(sequence.num_generated());
  parts_.metrics->e2e_latency_seconds.Observe(
      static_cast<double>(now_ns - sequence.request.arrival_ns) * kSecondsPerNs);
  Forget(sequence.request.id);
  parts_.scheduler->Finish(sequence, sched::FinishMode::kPublish);
}

void Engine::Complete(sched::Sequence& sequence) {
  TokenEvent event = EventOf(sequence);
  event.finish = FinishReason::kStop;
  const int32_t outbox = sequence.request.outbox;
  Finish(sequence);
  Emit(outbox, std::move(event));
}

void Engine::Abort(sched::Sequence& sequence, Status status) {
  TokenEvent event = EventOf(sequence);
  event.finish = FinishReason::kAbort;
  event.status = std::move(status);
  const int32_t outbox = sequence.request.outbox;
  parts_.metrics->aborted_requests.Increment();
  Forget(sequence.request.id);
  parts_.scheduler->Finish(sequence, sched::FinishMode::kDrop);
  Emit(outbox, std::move(event));
}

void Engine::ObservePrompt(const sched::Sequence& sequence) {
  const Request& request = sequence.request;
  parts_.metrics->prompt_tokens.Add(request.prompt.size());
  parts_.metrics->prompt_length.Observe(sequence.prompt_length());
  parts_.metrics->uncached_prompt_length.Observe(sequence.prompt_length() - sequence.cached_tokens);
  parts_.metrics->cached_tokens.Add(static_cast<uint64_t>(sequence.cached_tokens));
  parts_.metrics->queue_time_seconds.Observe(
      static_cast<double>(sequence.admitted_ns - request.arrival_ns) * kSecondsPerNs);
}

void Engine::ObserveToken(sched::Sequence& sequence, int64_t interval_ns) {
  EngineMetrics& metrics = *parts_.metrics;
  const int64_t now_ns = parts_.clock->NowNs();
  metrics.generation_tokens.Increment();
  ++throughput_tokens_;
  if (sequence.last_token_ns == 0) {
    ObservePrompt(sequence);
    metrics.time_to_first_token_seconds.Observe(
        static_cast<double>(now_ns - sequence.request.arrival_ns) * kSecondsPerNs);
  } else {
    metrics.inter_token_latency_seconds.Observe(static_cast<double>(interval_ns) * kSecondsPerNs);
  }
  sequence.last_token_ns = now_ns;
}

void Engine::ObserveStep(const InFlightStep& step, const StepResult& result, int64_t wait_ns,
                         int64_t commit_ns) {
  parts_.metrics->step_seconds.Observe(static_cast<double>(result.device_ns) * kSecondsPerNs);
  if (!step.after_rest && device_end_ns_ > 0) {
    const int64_t gap_ns = std::max<int64_t>(0, result.device_start_ns - device_end_ns_);
    parts_.metrics->step_gap_seconds.Observe(static_cast<double>(gap_ns) * kSecondsPerNs);
  }
  device_end_ns_ = result.device_start_ns + result.device_ns;
  const sched::SchedulerStats stats = parts_.scheduler->stats();
  obs::StepRecord record;
  record.start_ns = step.submitted_ns - step.plan_ns;
  record.plan_ns = step.plan_ns;
  record.wait_start_ns = parts_.clock->NowNs() - commit_ns - wait_ns;
  record.wait_ns = wait_ns;
  record.device_start_ns = result.device_start_ns;
  record.forward_ns = result.device_ns;
  record.commit_ns = commit_ns;
  record.num_rows = static_cast<int32_t>(step.plan.rows.size());
  for (const StepRow& row : step.plan.rows) {
    const bool decodes = row.num_tokens() == row.num_drafts + 1;
    (decodes ? record.num_decode_tokens : record.num_prefill_tokens) += row.num_tokens();
  }
  record.num_running = stats.num_running;
  record.num_waiting = stats.num_waiting;
  record.num_retracted = static_cast<int32_t>(stats.num_retractions - seen_retractions_);
  const kv::PageCounts pages = parts_.cache->counts(0);
  record.num_pages_cached = pages.evictable;
  record.num_pages_used = pages.usable - pages.free - pages.evictable;
  parts_.step_log->Append(record);
}

void Engine::PublishGauges() {
  EngineMetrics& metrics = *parts_.metrics;
  const sched::SchedulerStats stats = parts_.scheduler->stats();
  const kv::PageCounts pages = parts_.cache->counts(0);
  const auto tokens = [&](int32_t count) {
    return static_cast<double>(count) * parts_.cache->page_tokens();
  };
  const int32_t used = pages.usable - pages.free - pages.evictable;
  num_running_.store(stats.num_running, std::memory_order_relaxed);
  num_waiting_.store(stats.num_waiting, std::memory_order_relaxed);
  num_free_slots_.store(stats.num_free_slots, std::memory_order_relaxed);
  used_tokens_.store(int64_t{used} * parts_.cache->page_tokens(), std::memory_order_relaxed);
  evictable_tokens_.store(int64_t{pages.evictable} * parts_.cache->page_tokens(),
                          std::memory_order_relaxed);
  paused_shown_.store(paused_, std::memory_order_relaxed);
  metrics.num_paused.Set(paused_ ? stats.num_running + stats.num_waiting : 0);
  metrics.num_running.Set(stats.num_running);
  metrics.num_waiting.Set(stats.num_waiting);
  const int32_t slots = stats.num_running + stats.num_free_slots;
  metrics.utilization.Set(static_cast<double>(stats.num_running) / slots);
  metrics.used_tokens.Set(tokens(used));
  metrics.token_usage.Set(static_cast<double>(used) / pages.usable);
  metrics.evictable_tokens.Set(tokens(pages.evictable));
  metrics.available_tokens.Set(tokens(pages.free + pages.evictable));
  if (parts_.pools != nullptr) parts_.pools->Publish(*parts_.cache);
  metrics.new_token_ratio.Set(stats.new_token_ratio);
  metrics.retracted_requests.Add(stats.num_retractions - seen_retractions_);
  seen_retractions_ = stats.num_retractions;

  const kv::KvCacheStats cache = parts_.cache->stats();
  if (cache.lookup_tokens > 0) {
    const double rate =
        static_cast<double>(cache.hit_tokens) / static_cast<double>(cache.lookup_tokens);
    metrics.cache_hit_rate.Set(rate);
    cache_hit_rate_.store(rate, std::memory_order_relaxed);
  }
  const uint64_t evicted = cache.evicted_pages[0];
  metrics.evicted_tokens.Add((evicted - seen_evicted_pages_) *
                             static_cast<uint64_t>(parts_.cache->page_tokens()));
  seen_evicted_pages_ = evicted;

  const int64_t now_ns = parts_.clock->NowNs();
  const bool idle = stats.num_running == 0;
  if (now_ns - throughput_since_ns_ >= kThroughputPeriodNs || idle) {
    const double seconds = static_cast<double>(now_ns - throughput_since_ns_) * kSecondsPerNs;
    if (seconds > 0) {
      const double rate = idle ? 0.0 : static_cast<double>(throughput_tokens_) / seconds;
      metrics.gen_throughput.Set(rate);
      gen_throughput_.store(rate, std::memory_order_relaxed);
    }
    throughput_since_ns_ = now_ns;
    throughput_tokens_ = 0;
  }
}

}  // namespace hayate::engine
