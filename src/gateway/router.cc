#include "gateway/router.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "http/endpoint.h"

namespace hayate::gateway {
namespace {

constexpr int64_t kUnbounded = INT64_MAX;

// "base:adapter" is served by whoever serves the base.
std::string_view WithoutAdapter(std::string_view model) { return model.substr(0, model.find(':')); }

}  // namespace

Router::Router(const RouterOptions& options) : options_(options) {}

Result<WorkerId> Router::Add(const WorkerSpec& spec) {
  const auto url = http::ParseUrl(spec.url);
  if (!url.ok()) return url.status();
  std::optional<WorkerId> known;  // the first of its ranks
  for (const auto& worker : workers_) {
    if (worker->spec->url != spec.url) continue;
    // A draining worker that is added again stays after all.
    worker->draining = false;
    const int rank = worker->spec->dp_rank;
    auto changed = std::make_shared<WorkerSpec>(spec);
    changed->dp_rank = rank;
    worker->spec = std::move(changed);
    if (!known) known = worker->id;
  }
  if (known) return *known;
  if (static_cast<int64_t>(workers_.size()) >= options_.max_workers) {
    return Error(ErrorCode::kResourceExhausted, "there are {} workers already", workers_.size());
  }
  return Place(spec);
}

WorkerId Router::Place(const WorkerSpec& spec) {
  const auto free_slot = std::find(slots_.begin(), slots_.end(), false);
  const auto slot = static_cast<uint16_t>(free_slot - slots_.begin());
  if (free_slot == slots_.end()) slots_.push_back(false);
  slots_[slot] = true;
  workers_.push_back(std::make_unique<Worker>(Worker{.id = WorkerId{next_id_++},
                                                     .spec = std::make_shared<WorkerSpec>(spec),
                                                     .name = NameOf(spec),
                                                     .role = spec.role,
                                                     .slot = slot,
                                                     .health = Health(options_.health),
                                                     .breaker = CircuitBreaker(options_.breaker),
                                                     .outlier = OutlierScore(options_.outlier)}));
  CountRoles();
  return workers_.back()->id;
}

Router::Worker* Router::Get(WorkerId id) {
  const auto it =
      std::lower_bound(workers_.begin(), workers_.end(), id,
                       [](const auto& worker, WorkerId key) { return worker->id < key; });
  return it != workers_.end() && (*it)->id == id ? it->get() : nullptr;
}

const Router::Worker* Router::Get(WorkerId id) const { return const_cast<Router*>(this)->Get(id); }

bool Router::Drain(WorkerId id) {
  const Worker* worker = Get(id);
  if (worker == nullptr) return false;
  for (const auto& other : workers_) {
    if (other->spec->url == worker->spec->url) other->draining = true;
  }
  return true;
}

bool Router::Remove(WorkerId id) {
  const Worker* worker = Get(id);
  if (worker == nullptr) return false;
  for (const auto& [pool, policy] : policies_) policy->Forget(worker->slot, id);
  slots_[worker->slot] = false;
  std::erase_if(workers_, [id](const auto& candidate) { return candidate->id == id; });
  CountRoles();
  return true;
}

void Router::CountRoles() {
  num_prefill_ = num_decode_ = 0;
  for (const auto& worker : workers_) {
    num_prefill_ += worker->role == WorkerRole::kPrefill ? 1 : 0;
    num_decode_ += worker->role == WorkerRole::kDecode ? 1 : 0;
  }
}

void Router::OnProbe(WorkerId id, bool good, int64_t now_ns) {
  Worker* worker = Get(id);
  if (worker == nullptr) return;
  worker->probing_until_ns = 0;
  if (worker->probe_at_once) return;
  const bool suspected = std::exchange(worker->suspect_until_ns, 0) != 0;
  const Health::State before = worker->health.state();
  if (suspected && !good) {
    worker->health.OnLost(now_ns);
    worker->lost = true;
  }
  worker->health.OnProbe(good, now_ns);
  if (good && suspected && worker->breaker.state() == CircuitBreaker::State::kOpen) {
    worker->breaker.OnAlive(now_ns);
    worker->health.EaseIn(now_ns);
  }
  if (worker->health.state() != Health::State::kUp || before != Health::State::kDown) return;
  worker->breaker.OnReturn();
  // Behind a closed port the process was gone, and its cache with it. Mere silence empties nothing.
  if (std::exchange(worker->lost, false)) ForgetCache(*worker);
}

void Router::ForgetCache(Worker& worker) {
  for (const auto& [pool, policy] : policies_) {
    policy->Forget(worker.slot, worker.id);
    if (worker.facts.max_total_tokens > 0) {
      policy->SetCapacity(worker.slot, worker.facts.max_total_tokens);
    }
  }
  worker.cache_cursor = {};
}

std::vector<Router::Probe> Router::DueProbes(int64_t now_ns, int64_t patience_ns) {
  std::vector<Probe> due;
  for (const auto& worker : workers_) {
    if (now_ns < worker->probing_until_ns) continue;
    if (now_ns < worker->health.next_probe_ns() && !worker->probe_at_once) continue;
    worker->probe_at_once = false;
    worker->probing_until_ns = now_ns + patience_ns;
    due.push_back({worker->id, worker->spec, worker->health.state() == Health::State::kUp});
  }
  return due;
}

std::vector<WorkerId> Router::Reap() {
  std::vector<WorkerId> gone;
  for (const auto& worker : workers_) {
    if (worker->draining && worker->requests == 0) gone.push_back(worker->id);
  }
  for (const WorkerId id : gone) Remove(id);
  return gone;
}

void Router::OnFacts(WorkerId id, const WorkerFacts& facts) {
  Worker* worker = Get(id);
  if (worker == nullptr) return;
  worker->facts = facts;
  if (facts.role_known && worker->spec->role == WorkerRole::kRegular) worker->role = facts.role;
  CountRoles();
  if (facts.max_total_tokens > 0) {
    for (const auto& [pool, policy] : policies_) {
      policy->SetCapacity(worker->slot, facts.max_total_tokens);
    }
  }
  if (options_.dp_aware && facts.dp_size > 1 && worker->spec->dp_rank < 0) SplitRanks(*worker);
}

// The worker becomes its process's first rank, and the others stand beside it, not yet looked at.
void Router::SplitRanks(Worker& worker) {
  const int64_t size = std::min(worker.facts.dp_size, kMaxRanks);
  auto first = std::make_shared<WorkerSpec>(*worker.spec);
  first->dp_rank = 0;
  WorkerSpec spec = *first;
  worker.spec = std::move(first);
  worker.name = NameOf(*worker.spec);
  for (int rank = 1; rank < size; ++rank) {
    if (static_cast<int64_t>(workers_.size()) >= options_.max_workers) return;
    spec.dp_rank = rank;
    Place(spec);
  }
}

void Router::OnLoad(WorkerId id, const ReportedLoad& load) {
  if (Worker* worker = Get(id); worker != nullptr) worker->reported = load;
}

void Router::OnCacheFlushed() {
  for (const auto& worker : workers_) ForgetCache(*worker);
}

std::vector<Router::CacheRead> Router::DueCacheReads(int64_t now_ns, int64_t patience_ns) {
  std::vector<CacheRead> due;
  if (options_.cache_read_ns <= 0) return due;
  for (const auto& worker : workers_) {
    // The ranks of a process share no cache, and it does not tell them apart.
    if (!worker->facts.tells_cache || worker->spec->dp_rank >= 0) continue;
    if (StateOf(*worker) != WorkerState::kReady || now_ns < worker->next_cache_read_ns) continue;
    worker->next_cache_read_ns = now_ns + patience_ns;
    due.push_back({worker->id, worker->spec, worker->cache_cursor});
  }
  return due;
}

void Router::OnCacheRead(const CacheRead& read, const std::optional<CacheChanges>& changes,
                         int64_t now_ns) {
  Worker* worker = Get(read.id);
  if (worker == nullptr) return;
  worker->next_cache_read_ns = changes && changes->more ? now_ns : now_ns + options_.cache_read_ns;
  // Its cache was lost, or a policy made, since it was asked: then it is asked for everything.
  if (!changes || worker->cache_cursor != read.cursor) return;
  worker->cache_cursor = changes->cursor;
  for (const auto& [pool, policy] : policies_) {
    if (pool.first == worker->role) policy->OnCacheChanges(worker->slot, *changes, now_ns);
  }
}

WorkerState Router::StateOf(const Worker& worker) {
  if (worker.draining) return WorkerState::kDraining;
  switch (worker.health.state()) {
    case Health::State::kPending:
      return WorkerState::kPending;
    case Health::State::kUp:
      return WorkerState::kReady;
    case Health::State::kDown:
      return WorkerState::kDown;
  }
  return WorkerState::kDown;
}

bool Router::Serves(const Worker& worker, std::string_view model) const {
  if (model.empty()) return true;
  if (!worker.spec->model.empty()) {
    return worker.spec->model == model || worker.spec->model == WithoutAdapter(model);
  }
  // One that says nothing of itself may serve anything.
  if (worker.facts.models.empty()) return true;
  for (const std::string& name : worker.facts.models) {
    if (name == model || name == WithoutAdapter(model)) return true;
  }
  return false;
}

bool Router::Passes(Worker& worker, const RouteRequest& request, Filter filter,
                    int64_t now_ns) const {
  if (now_ns < worker.suspect_until_ns) return false;
  if (filter < Filter::kTriedToo) {
    const auto& tried = request.tried;
    if (std::find(tried.begin(), tried.end(), worker.id) != tried.end()) return false;
  }
  if (filter < Filter::kEjectedToo && worker.outlier.Ejected(now_ns)) return false;
  if (filter < Filter::kBusyToo && now_ns < worker.avoid_until_ns) return false;
  return worker.breaker.Allows(now_ns);
}

Candidate Router::CandidateOf(const Worker& worker, int64_t now_ns) const {
  Candidate candidate{.id = worker.id,
                      .slot = worker.slot,
                      .weight = worker.health.Weight(now_ns),
                      .requests = worker.requests,
                      .tokens = worker.tokens,
                      .name = worker.name};
  if (worker.reported.at_ns != 0 && now_ns - worker.reported.at_ns < options_.load_valid_ns) {
    candidate.waiting = worker.reported.waiting;
    candidate.token_usage = worker.reported.token_usage;
  }
  return candidate;
}

Router::Picked Router::Pick(const RouteRequest& request, int64_t now_ns) {
  bool served = false;
  bool known = false;  // some worker has told what it serves
  bool may_come = false;
  Worker* first = nullptr;
  int64_t soonest_ns = INT64_MAX;
  size_t untried = 0;
  candidates_.clear();
  for (const Filter filter :
       {Filter::kBest, Filter::kBusyToo, Filter::kEjectedToo, Filter::kTriedToo}) {
    for (const auto& worker : workers_) {
      if (worker->role != request.role) continue;
      const bool ready = StateOf(*worker) == WorkerState::kReady;
      // One that never told its models may serve any, but only while it is there.
      const bool told = !worker->spec->model.empty() || !worker->facts.models.empty();
      known = known || told;
      may_come = may_come || (!worker->draining && Serves(*worker, request.model));
      if ((!told && !ready) || !Serves(*worker, request.model)) continue;
      served = true;
      if (!ready) continue;
      if (first == nullptr) first = worker.get();
      if (!Passes(*worker, request, filter, now_ns)) {
        if (worker->breaker.state() == CircuitBreaker::State::kOpen) {
          soonest_ns = std::min(soonest_ns, worker->breaker.open_until_ns());
        }
        continue;
      }
      candidates_.push_back(CandidateOf(*worker, now_ns));
    }
    if (filter != Filter::kTriedToo) untried = candidates_.size();
    if (!candidates_.empty() || !served) break;
  }
  if (candidates_.empty()) {
    Picked none{.failure = known && !served ? PickFailure::kUnknownModel : PickFailure::kNoWorker,
                .may_come = may_come};
    if (soonest_ns != INT64_MAX) {
      none.retry_after_s =
          std::max<int64_t>(1, (soonest_ns - now_ns + 999'999'999) / 1'000'000'000);
    }
    return none;
  }
  const std::string_view pool = !first->spec->model.empty()   ? std::string_view(first->spec->model)
                                : first->facts.models.empty() ? std::string_view()
                                                              : first->facts.models.front();
  const size_t index = PolicyFor(request.role, pool).Pick(candidates_, request.key, now_ns);
  Worker& worker = *Get(candidates_[index].id);
  ++worker.requests;
  ++worker.total;
  Lease lease{.worker = worker.id,
              .spec = worker.spec,
              .prompt_tokens = request.key.prompt_tokens,
              .output_tokens = request.key.output_tokens,
              .others_left = untried > 1,
              .pass = worker.breaker.Admit(now_ns),
              .num_breaks = worker.num_breaks};
  worker.tokens += lease.prompt_tokens + lease.output_tokens;
  return {.lease = std::move(lease)};
}

Policy& Router::PolicyFor(WorkerRole role, std::string_view pool) {
  const auto key = std::pair(role, std::string(pool));
  if (const auto it = policies_.find(key); it != policies_.end()) return *it->second;
  PolicyOptions options = options_.policy;
  if (role == WorkerRole::kPrefill && !options_.prefill_policy.empty()) {
    options.name = options_.prefill_policy;
  }
  if (role == WorkerRole::kDecode) {
    options.name = options_.decode_policy.empty() ? "power_of_two" : options_.decode_policy;
  }
  auto made = MakePolicy(options);
  CHECK(made.ok()) << made.status().ToString();  // names are checked when options are read
  Policy& policy = *(policies_[key] = std::move(made).value());
  for (const auto& worker : workers_) {
    if (worker->facts.max_total_tokens > 0) {
      policy.SetCapacity(worker->slot, worker->facts.max_total_tokens);
    }
    worker->cache_cursor = {};  // the new one wants to know everything
  }
  return policy;
}

void Router::OnFirstByte(Lease& lease) {
  if (Worker* worker = Get(lease.worker); worker != nullptr) worker->tokens -= lease.prompt_tokens;
  lease.prompt_tokens = 0;
}

bool Router::Finish(const Lease& lease, AttemptEnd end, int64_t now_ns) {
  Worker* worker = Get(lease.worker);
  if (worker == nullptr) return false;  // removed meanwhile
  --worker->requests;
  worker->tokens -= lease.prompt_tokens + lease.output_tokens;
  if (end == AttemptEnd::kBusy) worker->avoid_until_ns = now_ns + options_.busy_avoid_ns;
  const bool broken = end == AttemptEnd::kNoConnection || end == AttemptEnd::kBroken;
  const bool known = broken && lease.num_breaks != worker->num_breaks;
  if (IsFault(end)) ++worker->faults;
  if (IsFault(end) && !known) {
    worker->breaker.Fail(lease.pass, now_ns);
  } else if (end == AttemptEnd::kOk) {
    worker->breaker.Succeed(lease.pass);
  } else {
    worker->breaker.Abandon(lease.pass);
  }
  if (end == AttemptEnd::kOk || (IsFault(end) && !known)) {
    worker->outlier.Count(IsFault(end));
    if (IsFault(end)) JudgeOutliers(*worker, now_ns);
  }
  if (!broken || known) return false;
  ++worker->num_breaks;
  worker->probe_at_once = true;
  worker->suspect_until_ns = now_ns + options_.suspect_ns;
  if (end == AttemptEnd::kNoConnection) {
    worker->health.OnLost(now_ns);
    worker->lost = true;
  }
  return true;
}

int64_t Router::Room(std::string_view model, WorkerRole role, int64_t now_ns) {
  const RouteRequest request{.model = model, .role = role};
  int64_t trials = 0;
  for (const auto& worker : workers_) {
    if (worker->role != role || StateOf(*worker) != WorkerState::kReady) continue;
    if (!Serves(*worker, model) || !Passes(*worker, request, Filter::kTriedToo, now_ns)) continue;
    if (worker->breaker.state() == CircuitBreaker::State::kClosed) return kUnbounded;
    ++trials;
  }
  return trials;
}

int64_t Router::Room(const WaitingRoom::Pool& pool, int64_t now_ns) {
  switch (pool.workers) {
    case WaitingRoom::Workers::kRegular:
      return Room(pool.model, WorkerRole::kRegular, now_ns);
    case WaitingRoom::Workers::kDecode:
      return Room(pool.model, WorkerRole::kDecode, now_ns);
    case WaitingRoom::Workers::kPair:
      return std::min(Room(pool.model, WorkerRole::kPrefill, now_ns),
                      Room(pool.model, WorkerRole::kDecode, now_ns));
  }
  return 0;
}

void Router::JudgeOutliers(Worker& worker, int64_t now_ns) {
  double others = 0.0;
  int count = 0;
  int ejected = 0;
  for (const auto& other : workers_) {
    if (other.get() == &worker || other->role != worker.role) continue;
    others += other->outlier.failure_rate();
    ejected += other->outlier.Ejected(now_ns) ? 1 : 0;
    ++count;
  }
  // At most half of a fleet is out.
  if (count == 0 || (ejected + 1) * 2 > count + 1) return;
  if (worker.outlier.Judge(others / count, now_ns)) ++worker.ejected;
}

Router::WorkerView Router::ViewOf(const Worker& worker) {
  return {.id = worker.id,
          .spec = worker.spec,
          .state = StateOf(worker),
          .breaker = worker.breaker.state(),
          .facts = worker.facts,
          .reported = worker.reported,
          .role = worker.role,
          .requests = worker.requests,
          .tokens = worker.tokens,
          .total = worker.total,
          .faults = worker.faults,
          .breaker_opened = worker.breaker.times_opened(),
          .ejected = worker.ejected};
}

std::vector<Router::WorkerView> Router::Workers() const {
  std::vector<WorkerView> views;
  views.reserve(workers_.size());
  for (const auto& worker : workers_) views.push_back(ViewOf(*worker));
  return views;
}

std::optional<Router::WorkerView> Router::Find(WorkerId id) const {
  const Worker* worker = Get(id);
  if (worker == nullptr) return std::nullopt;
  return ViewOf(*worker);
}

std::optional<Router::WorkerView> Router::FindUrl(std::string_view url) const {
  for (const auto& worker : workers_) {
    if (worker->spec->url == url || NameOf(*worker->spec) == url) return ViewOf(*worker);
  }
  return std::nullopt;
}

std::vector<std::string> Router::Models() const {
  std::vector<std::string> models;
  for (const auto& worker : workers_) {
    if (StateOf(*worker) != WorkerState::kReady) continue;
    const auto add = [&models](const std::string& name) {
      if (std::find(models.begin(), models.end(), name) == models.end()) models.push_back(name);
    };
    if (!worker->spec->model.empty()) {
      add(worker->spec->model);
    } else {
      for (const std::string& name : worker->facts.models) add(name);
    }
  }
  return models;
}

bool Router::Ready() const {
  bool up[3] = {};
  for (const auto& worker : workers_) {
    if (StateOf(*worker) == WorkerState::kReady) up[static_cast<size_t>(worker->role)] = true;
  }
  return up[0] || (up[1] && up[2]);
}

size_t Router::policy_bytes() const {
  size_t total = 0;
  for (const auto& [pool, policy] : policies_) total += policy->bytes();
  return total;
}

}  // namespace hayate::gateway
