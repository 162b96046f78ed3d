#include "gateway/gateway.h"

#include <utility>

#include "gateway/error_reply.h"
#include "gateway/fan_out.h"
#include "gateway/lane.h"
#include "gateway/own_routes.h"
#include "gateway/prober.h"
#include "gateway/state.h"

namespace hayate::gateway {

struct Gateway::Impl {
  Impl(const GatewayOptions& options, obs::Registry& registry) : state(options, registry) {}

  State state;
  std::vector<std::unique_ptr<Lane>> lanes;  // [threads]
  std::unique_ptr<Prober> prober;
};

Result<std::unique_ptr<Gateway>> Gateway::Create(
    GatewayOptions options, obs::Registry& registry, const Clock& clock,
    std::span<const std::unique_ptr<http::IoThread>> threads, uint64_t seed) {
  PolicyOptions policy = options.router.policy;
  for (const std::string& name :
       {policy.name, options.router.prefill_policy, options.router.decode_policy}) {
    if (name.empty()) continue;
    policy.name = name;
    const auto made = MakePolicy(policy);
    if (!made.ok()) return made.status();
  }
  auto impl = std::make_unique<Impl>(options, registry);
  if (!options.access_log.empty()) {
    ASSIGN_OR_RETURN(impl->state.access_log, AccessLog::Open(options.access_log));
  }
  std::vector<Lane*> lanes;
  for (const auto& thread : threads) {
    impl->lanes.push_back(std::make_unique<Lane>(impl->state, *thread, seed + lanes.size()));
    lanes.push_back(impl->lanes.back().get());
  }
  impl->prober = std::make_unique<Prober>(impl->state, clock, std::move(lanes));
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Gateway::~Gateway() { impl_->prober.reset(); }

void Gateway::Handle(http::Request& request, http::ResponseWriter writer) {
  if (http::ApplyCors(impl_->state.options.cors, request, writer)) return;
  const Route route = RouteOf(request.method, request.path);
  Lane& lane = *impl_->lanes[request.thread.index()];
  if (route.kind == RouteKind::kInference || route.kind == RouteKind::kAnyWorker) {
    return lane.Proxy(request, std::move(writer), route);
  }
  State& state = impl_->state;
  const auto keys = state.Keys();
  if (!route.open && !keys->keys.empty()) {
    const auto key = FindApiKey(keys->keys, request.headers.Find("authorization").value_or(""),
                                request.headers.Find("x-api-key").value_or(""));
    const bool changes = request.method != "GET" && request.method != "HEAD";
    if (!key || (changes && !keys->keys[*key].admin)) {
      return SendErrorReply(writer,
                            {.status = key ? 403 : 401,
                             .code = key ? "not_allowed" : "invalid_api_key",
                             .message = key ? "this API key may not change the fleet"
                                            : "the API key is missing or wrong; send "
                                              "Authorization: Bearer KEY"},
                            {});
    }
  }
  if (route.kind == RouteKind::kAllWorkers) return FanOut(lane, request, std::move(writer));
  AnswerOwnRoute(
      state, [&state] { state.control.Ring(); }, request, std::move(writer));
}

void Gateway::HandleMetrics(http::Request& request, http::ResponseWriter writer) {
  if (request.path == "/metrics" || request.path == "/health") {
    return AnswerOwnRoute(
        impl_->state, [] {}, request, std::move(writer));
  }
  writer.Send({.status = 404, .content_type = "text/plain"}, "only /metrics is here\n");
}

void Gateway::SetWorkers(std::string_view source, const std::vector<WorkerSpec>& specs) {
  {
    std::lock_guard lock(impl_->state.mutex);
    SyncWorkers(impl_->state.router, source, specs);
  }
  impl_->state.control.Ring();
}

void Gateway::SetKeys(std::vector<ApiKey> keys) { impl_->state.SetKeys(std::move(keys)); }

void Gateway::BeginDraining() { impl_->state.draining = true; }

int Gateway::num_running() const { return static_cast<int>(impl_->state.metrics.running.value()); }

http::ServerOptions::ErrorBody Gateway::RenderError(int status, std::string_view reason) {
  return {"application/json",
          ErrorJson({.status = status, .code = "bad_request", .message = std::string(reason)})};
}

}  // namespace hayate::gateway
