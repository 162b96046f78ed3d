#include "gateway/prober.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "gateway/lane.h"
#include "gateway/worker_facts.h"
#include "http/client.h"

namespace hayate::gateway {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr int64_t kSweepNs = 5'000'000'000;
constexpr size_t kMaxInfoBytes = 4 << 20;
// A whole cache: 20 bytes a hash.
constexpr size_t kMaxCacheBytes = 64 << 20;
constexpr std::string_view kCachePath = "/v1/cache_events";
// Hashes put into the tree under one hold of the lock: about 50 microseconds.
constexpr size_t kCacheSlice = 512;

struct Reply {
  int status = 0;  // 0: none
  std::string body;
};

Reply Get(const GatewayOptions& options, const Target& target, const std::string& path,
          const std::string& key, size_t max_bytes = kMaxInfoBytes) {
  const auto timeout = options.health_timeout;
  auto client = http::BlockingClient::Create(target.endpoint, {.connect_timeout = timeout,
                                                               .head_timeout = timeout,
                                                               .read_timeout = timeout,
                                                               .tls = options.worker_tls});
  if (!client.ok()) return {};
  http::ClientRequest request{.target = target.base_path + path};
  if (!key.empty()) request.headers.emplace_back("Authorization", "Bearer " + key);
  auto response = client->Fetch(std::move(request), max_bytes);
  if (!response.ok()) return {};
  return {response->status, std::move(response->body)};
}

}  // namespace

Prober::Prober(State& state, const Clock& clock, std::vector<Lane*> lanes)
    : state_(state),
      clock_(clock),
      lanes_(std::move(lanes)),
      pool_("gw-probe", kProbeThreads, kMaxWaitingProbes),
      thread_("gw-control", [this] { Run(); }) {}

Prober::~Prober() {
  stopping_ = true;
  state_.control.Ring();
  thread_.Join();
}

void Prober::Run() {
  while (!stopping_) {
    Tick();
    state_.control.WaitFor(kTick);
  }
}

void Prober::Tick() {
  const int64_t now_ns = clock_.NowNs();
  ExpireQueue(now_ns);
  std::vector<Router::Probe> due;
  std::vector<Router::Probe> loads;
  std::vector<Router::CacheRead> caches;
  {
    std::lock_guard lock(state_.mutex);
    for (const WorkerId id : state_.router.Reap()) state_.targets.erase(id);
    const int64_t patience_ns = 4 * std::chrono::nanoseconds(state_.options.health_timeout).count();
    due = state_.router.DueProbes(now_ns, patience_ns);
    caches = state_.router.DueCacheReads(now_ns, patience_ns);
    if (state_.options.load_interval.count() > 0 && now_ns >= next_load_ns_) {
      next_load_ns_ = now_ns + std::chrono::nanoseconds(state_.options.load_interval).count();
      for (const auto& worker : state_.router.Workers()) {
        if (worker.state == WorkerState::kReady) loads.push_back({worker.id, worker.spec, true});
      }
    }
  }
  for (const Router::Probe& probe : due) {
    (void)pool_.TrySubmit([this, probe] { Probe(probe); });
  }
  for (const Router::Probe& probe : loads) {
    (void)pool_.TrySubmit([this, probe] {
      if (stopping_) return;
      if (const auto target = Resolve(probe)) AskLoad(probe, *target);
    });
  }
  for (const Router::CacheRead& read : caches) {
    (void)pool_.TrySubmit([this, read] {
      if (!stopping_) AskCache(read);
    });
  }
  state_.WakeWaiting(now_ns);  // a breaker's time may be over
  if (state_.access_log != nullptr) state_.access_log->Flush();
  if (now_ns < next_sweep_ns_) return;
  next_sweep_ns_ = now_ns + kSweepNs;
  for (Lane* lane : lanes_) lane->PostSweep();
}

void Prober::ExpireQueue(int64_t now_ns) {
  std::vector<Admission::Ticket> expired;
  std::vector<State::Waiter> waiters;
  {
    std::lock_guard lock(state_.mutex);
    state_.admission.Expire(now_ns, expired);
    for (const Admission::Ticket ticket : expired) {
      const auto it = state_.waiters.find(ticket);
      if (it == state_.waiters.end()) continue;
      waiters.push_back(it->second);
      state_.waiters.erase(it);
    }
  }
  for (const State::Waiter& waiter : waiters) waiter.lane->PostQueueTimeout(waiter.exchange);
}

std::shared_ptr<const Target> Prober::Resolve(const Router::Probe& probe) {
  const auto url = http::ParseUrl(probe.spec->url);
  if (!url.ok()) return nullptr;
  auto address = http::Resolve(url->endpoint);
  if (!address.ok()) {
    LOG_DEBUG("{}: {}", probe.spec->url, address.status().message());
    return nullptr;
  }
  auto target = std::make_shared<Target>();
  target->endpoint = url->endpoint;
  target->address = std::move(*address);
  target->base_path = url->target == "/" ? "" : url->target;
  std::lock_guard lock(state_.mutex);
  if (!state_.router.Find(probe.id)) return nullptr;  // removed meanwhile
  auto& known = state_.targets[probe.id];
  // An unchanged address keeps its connections.
  if (known == nullptr || known->address.bytes != target->address.bytes) known = std::move(target);
  return known;
}

void Prober::Probe(const Router::Probe& probe) {
  if (stopping_) return;
  const auto target = Resolve(probe);
  const bool good =
      target != nullptr && (!state_.options.health_checks || AskHealth(probe, *target));
  if (good && !probe.up) AskFacts(probe, *target);
  std::optional<Router::WorkerView> view;
  {
    std::lock_guard lock(state_.mutex);
    state_.router.OnProbe(probe.id, good, clock_.NowNs());
    view = state_.router.Find(probe.id);
  }
  if (good) state_.WakeWaiting(clock_.NowNs());
  if (!view || (view->state == WorkerState::kReady) == probe.up) return;
  LOG_INFO("worker {} is {}", probe.spec->url, StateName(view->state));
}

bool Prober::AskHealth(const Router::Probe& probe, const Target& target) {
  const Reply reply = Get(state_.options, target, state_.options.health_path, probe.spec->api_key);
  // A wrong key says that somebody is at home.
  return reply.status == 200 || reply.status == 401 || reply.status == 403;
}

void Prober::AskFacts(const Router::Probe& probe, const Target& target) {
  WorkerFacts facts;
  Reply info = Get(state_.options, target, "/server_info", probe.spec->api_key);
  if (info.status == 404)
    info = Get(state_.options, target, "/get_server_info", probe.spec->api_key);
  if (info.status == 200) ReadServerInfo(info.body, facts);
  const Reply models = Get(state_.options, target, "/v1/models", probe.spec->api_key);
  if (models.status == 200) ReadModelList(models.body, facts);
  if (state_.options.router.cache_read_ns > 0) {
    const Reply cache =
        Get(state_.options, target, std::string(kCachePath) + "?limit=0", probe.spec->api_key);
    facts.tells_cache = cache.status == 200 && ReadCacheChanges(cache.body).has_value();
  }
  {
    std::lock_guard lock(state_.mutex);
    state_.router.OnFacts(probe.id, facts);
  }
  AskLoad(probe, target);
}

void Prober::AskLoad(const Router::Probe& probe, const Target& target) {
  Reply reply = Get(state_.options, target, "/v1/loads?include=core", probe.spec->api_key);
  if (reply.status == 404) reply = Get(state_.options, target, "/get_load", probe.spec->api_key);
  if (reply.status != 200) return;
  const auto load = ReadLoads(reply.body, probe.spec->dp_rank, clock_.NowNs());
  if (!load) return;
  std::lock_guard lock(state_.mutex);
  state_.router.OnLoad(probe.id, *load);
}

void Prober::AskCache(const Router::CacheRead& read) {
  std::shared_ptr<const Target> target;
  {
    std::lock_guard lock(state_.mutex);
    if (const auto it = state_.targets.find(read.id); it != state_.targets.end()) {
      target = it->second;
    }
  }
  std::optional<CacheChanges> changes;
  if (target != nullptr) {
    const Reply reply =
        Get(state_.options, *target,
            fmt::format("{}?epoch={:x}&after={}", kCachePath, read.cursor.epoch, read.cursor.next),
            read.spec->api_key, kMaxCacheBytes);
    if (reply.status == 200) changes = ReadCacheChanges(reply.body);
  }
  // The cursor moves with the last slice: what comes between makes the rest void.
  while (changes && changes->held.size() > kCacheSlice) {
    const auto rest = changes->held.end() - kCacheSlice;
    CacheChanges slice{.cursor = read.cursor, .whole = std::exchange(changes->whole, false)};
    slice.held.assign(rest, changes->held.end());
    changes->held.erase(rest, changes->held.end());
    std::lock_guard lock(state_.mutex);
    state_.router.OnCacheRead(read, slice, clock_.NowNs());
  }
  std::lock_guard lock(state_.mutex);
  state_.router.OnCacheRead(read, changes, clock_.NowNs());
}

}  // namespace hayate::gateway
