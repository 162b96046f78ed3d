#include "gateway/admission.h"

#include <algorithm>

#include "base/check.h"

namespace hayate::gateway {
namespace {

// Two seconds' worth may come at once.
TokenBucket Bucket(double rate) { return TokenBucket(rate, 2.0 * rate); }

}  // namespace

Admission::Admission(const Options& options)
    : options_(options), requests_(Bucket(options.requests_per_second)) {}

void Admission::SetKeyLimits(Key key, const KeyLimits& limits) {
  if (static_cast<size_t>(key) >= keys_.size()) keys_.resize(key + 1);
  KeyState& state = keys_[key];
  state.requests = Bucket(limits.requests_per_second);
  state.tokens = Bucket(limits.tokens_per_second);
  state.max_concurrent = limits.max_concurrent;
}

Admission::KeyState* Admission::StateOf(Key key) {
  return key >= 0 && static_cast<size_t>(key) < keys_.size() ? &keys_[key] : nullptr;
}

int64_t Admission::num_running(Key key) const {
  return key >= 0 && static_cast<size_t>(key) < keys_.size() ? keys_[key].taken : 0;
}

Admission::Answer Admission::Enter(Key key, Priority priority, int64_t prompt_tokens,
                                   int64_t now_ns) {
  const auto refuse = [](Reason reason, int64_t seconds) {
    return Answer{.verdict = Verdict::kRefused, .reason = reason, .retry_after_s = seconds};
  };
  KeyState* state = StateOf(key);
  if (!requests_.Available(now_ns)) {
    return refuse(Reason::kRate, requests_.SecondsUntilAvailable());
  }
  if (state != nullptr) {
    if (state->max_concurrent > 0 && state->taken >= state->max_concurrent) {
      return refuse(Reason::kKeyConcurrency, 1);
    }
    if (!state->requests.Available(now_ns)) {
      return refuse(Reason::kKeyRate, state->requests.SecondsUntilAvailable());
    }
    if (!state->tokens.Available(now_ns)) {
      return refuse(Reason::kKeyTokens, state->tokens.SecondsUntilAvailable());
    }
  }
  const bool room =
      options_.max_concurrent <= 0 || (num_running() < options_.max_concurrent && queued_.empty());
  if (!room && num_queued() >= options_.max_queued) return refuse(Reason::kQueueFull, 1);

  requests_.Charge(1.0);
  if (state != nullptr) {
    state->requests.Charge(1.0);
    state->tokens.Charge(static_cast<double>(prompt_tokens));
    ++state->taken;
  }
  const Ticket ticket = next_ticket_++;
  if (room) {
    running_.emplace(ticket, key);
    return {.verdict = Verdict::kAdmitted, .ticket = ticket};
  }
  const int64_t deadline_ns = now_ns + options_.queue_timeout_ns;
  queued_.emplace(ticket, Waiting{key, static_cast<int>(priority), deadline_ns});
  classes_[static_cast<size_t>(priority)].insert(ticket);
  deadlines_.insert({deadline_ns, ticket});
  return {.verdict = Verdict::kQueued, .ticket = ticket};
}

void Admission::Release(Key key) {
  if (KeyState* state = StateOf(key); state != nullptr) --state->taken;
}

void Admission::Leave(Ticket ticket, int64_t output_tokens, std::vector<Ticket>& started) {
  const auto it = running_.find(ticket);
  CHECK(it != running_.end()) << "ticket " << ticket << " is not running";
  if (KeyState* state = StateOf(it->second); state != nullptr) {
    state->tokens.Charge(static_cast<double>(output_tokens));
  }
  Release(it->second);
  running_.erase(it);
  while (!queued_.empty() && num_running() < options_.max_concurrent) {
    const auto next = Next();
    const Ticket granted = next->first;
    running_.emplace(granted, next->second.key);
    Forget(next);
    started.push_back(granted);
  }
}

std::map<Admission::Ticket, Admission::Waiting>::iterator Admission::Next() {
  if (++grants_ % kFairTurn == 0) return queued_.begin();
  for (const auto& waiting : classes_) {
    if (!waiting.empty()) return queued_.find(*waiting.begin());
  }
  return queued_.begin();
}

void Admission::Forget(std::map<Ticket, Waiting>::iterator waiting) {
  classes_[waiting->second.priority].erase(waiting->first);
  deadlines_.erase({waiting->second.deadline_ns, waiting->first});
  queued_.erase(waiting);
}

bool Admission::Cancel(Ticket ticket) {
  const auto it = queued_.find(ticket);
  if (it == queued_.end()) return false;
  Release(it->second.key);
  Forget(it);
  return true;
}

void Admission::Expire(int64_t now_ns, std::vector<Ticket>& expired) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    const Ticket ticket = deadlines_.begin()->second;
    expired.push_back(ticket);
    Cancel(ticket);
  }
}

std::optional<int64_t> Admission::next_deadline_ns() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

}  // namespace hayate::gateway
