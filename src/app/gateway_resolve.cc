#include <charconv>
#include <fstream>
#include <sstream>

#include "app/gateway_options.h"
#include "base/error.h"
#include "gateway/own_routes.h"

namespace hayate::app {
namespace {

int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }
std::chrono::milliseconds Ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error(ErrorCode::kIo, "cannot read {}", path);
  return text.str();
}

Status AddUrl(const std::string& url, gateway::WorkerSpec spec, const char* flag,
              std::vector<gateway::WorkerSpec>& out) {
  auto normal = gateway::NormaliseWorkerUrl(url);
  if (!normal.ok())
    return Error(ErrorCode::kInvalidArgument, "{}: {}", flag, normal.status().message());
  spec.url = std::move(normal).value();
  spec.source = "flags";
  out.push_back(std::move(spec));
  return OkStatus();
}

bool IsPort(const std::string& text, int& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

gateway::RouterOptions RouterOf(const GatewayFlags& flags) {
  gateway::RouterOptions router;
  router.policy = flags.policy;
  router.policy.block_bytes = static_cast<size_t>(flags.block_size_tokens) * 4;
  router.policy.max_age_ns = Ns(flags.max_age_secs);
  router.policy.max_idle_ns = Ns(flags.max_idle_secs);
  router.prefill_policy = flags.prefill_policy;
  router.decode_policy = flags.decode_policy;
  router.dp_aware = flags.dp_aware;
  router.cache_read_ns = flags.cache_event_interval_ms * 1'000'000;
  router.breaker = {.enabled = !flags.disable_circuit_breaker,
                    .failure_threshold = flags.cb_failure_threshold,
                    .success_threshold = flags.cb_success_threshold,
                    .open_ns = Ns(flags.cb_timeout_duration_secs),
                    .window_ns = Ns(flags.cb_window_duration_secs)};
  router.health.failure_threshold = flags.health_failure_threshold;
  router.health.success_threshold = flags.health_success_threshold;
  router.health.interval_ns = Ns(flags.health_check_interval_secs);
  router.health.recovery_interval_ns =
      std::min(router.health.interval_ns, router.health.recovery_interval_ns);
  router.health.slow_start_ns = Ns(flags.slow_start_secs);
  router.outlier.enabled = !flags.disable_outlier_ejection;
  return router;
}

}  // namespace

Result<std::vector<gateway::WorkerSpec>> WorkersOfFlags(const GatewayFlags& flags) {
  std::vector<gateway::WorkerSpec> workers;
  gateway::WorkerSpec spec{.api_key = flags.worker_api_key};
  if (!flags.pd_disaggregation && (!flags.prefill.empty() || !flags.decode.empty())) {
    return Error(ErrorCode::kInvalidArgument, "--prefill and --decode need --pd-disaggregation");
  }
  for (const std::string& url : flags.worker_urls) {
    RETURN_IF_ERROR(AddUrl(url, spec, "--worker-urls", workers));
  }
  spec.role = gateway::WorkerRole::kPrefill;
  for (const std::string& token : flags.prefill) {
    int port = 0;
    const bool follows_url =
        !workers.empty() && workers.back().role == gateway::WorkerRole::kPrefill;
    if (follows_url && token == "none") continue;
    if (follows_url && IsPort(token, port)) {
      workers.back().bootstrap_port = port;
    } else {
      RETURN_IF_ERROR(AddUrl(token, spec, "--prefill", workers));
    }
  }
  spec.role = gateway::WorkerRole::kDecode;
  for (const std::string& url : flags.decode) {
    RETURN_IF_ERROR(AddUrl(url, spec, "--decode", workers));
  }
  return workers;
}

Result<std::vector<gateway::ApiKey>> KeysOfFlags(const GatewayFlags& flags) {
  std::vector<gateway::ApiKey> keys;
  if (!flags.api_key_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.api_key_file));
    auto parsed = gateway::ParseApiKeys(text);
    if (!parsed.ok()) return parsed.status().Under(flags.api_key_file);
    keys = std::move(parsed).value();
  }
  for (const std::string& key : flags.api_keys) {
    if (key.empty()) continue;
    keys.push_back({.id = fmt::format("flag-{}", keys.size()), .key = key});
  }
  return keys;
}

Result<std::shared_ptr<http::TlsIdentity>> TlsOfFlags(const GatewayFlags& flags) {
  if (flags.tls_cert_path.empty() != flags.tls_key_path.empty()) {
    return Error(ErrorCode::kInvalidArgument, "--tls-cert-path and --tls-key-path go together");
  }
  if (flags.tls_cert_path.empty()) return std::shared_ptr<http::TlsIdentity>();
  return http::TlsIdentity::Load({.cert_file = flags.tls_cert_path,
                                  .key_file = flags.tls_key_path,
                                  .client_ca_file = flags.tls_client_ca_path});
}

Result<gateway::DiscoveryOptions> DiscoveryOfFlags(const GatewayFlags& flags) {
  gateway::DiscoveryOptions options;
  options.worker_file = flags.worker_file;
  options.dns = flags.dns;
  options.dns_interval = Ms(flags.dns_interval_secs);
  options.worker_api_key = flags.worker_api_key;
  options.kube.api_server = flags.kube_api_server;
  options.kube.name_space = flags.discovery_namespace;
  options.kube.port = flags.discovery_port;
  if (flags.discovery_objects == "endpointslices") {
    options.kube.objects = gateway::KubeOptions::Objects::kEndpointSlices;
  }
  const auto add = [&options](const std::vector<std::string>& labels, gateway::WorkerRole role) {
    std::string joined;
    for (const std::string& label : labels) joined += (joined.empty() ? "" : ",") + label;
    if (!joined.empty()) options.kube.selectors.push_back({joined, role});
  };
  if (!flags.service_discovery) return options;
  add(flags.selector, gateway::WorkerRole::kRegular);
  add(flags.prefill_selector, gateway::WorkerRole::kPrefill);
  add(flags.decode_selector, gateway::WorkerRole::kDecode);
  if (options.kube.selectors.empty()) {
    return Error(ErrorCode::kInvalidArgument, "--service-discovery needs a --selector");
  }
  return options;
}

Result<gateway::GatewayOptions> ResolveGatewayOptions(const GatewayFlags& flags) {
  gateway::GatewayOptions options;
  ASSIGN_OR_RETURN(
      options.worker_tls,
      http::TlsContext::ForClient(
          {.ca_file = flags.worker_ca_path,
           .cert_file = flags.worker_cert_path,
           .key_file = flags.worker_key_path,
           .verify = flags.worker_tls_insecure ? http::TlsContext::ClientOptions::Verify::kNothing
                                               : http::TlsContext::ClientOptions::Verify::kPeer}));
  options.router = RouterOf(flags);
  options.retry = {.enabled = !flags.disable_retries,
                   .max_retries = flags.retry_max_retries,
                   .initial_backoff_ns = flags.retry_initial_backoff_ms * 1'000'000,
                   .max_backoff_ns = flags.retry_max_backoff_ms * 1'000'000,
                   .multiplier = flags.retry_backoff_multiplier,
                   .jitter = flags.retry_jitter_factor};
  options.admission = {.max_concurrent = std::max<int64_t>(0, flags.max_concurrent_requests),
                       .max_queued = flags.queue_size,
                       .queue_timeout_ns = Ns(flags.queue_timeout_secs),
                       .requests_per_second = flags.rate_limit};
  options.hedge = {.after_ns = flags.hedge_after_ms * 1'000'000,
                   .max_share = flags.hedge_max_share};
  options.headers.allowed = flags.forward_headers;
  options.headers.drop_cors = !flags.cors_allowed_origins.empty();
  options.cors.allowed_origins = flags.cors_allowed_origins;
  if (!flags.request_id_headers.empty()) {
    options.headers.request_id_headers = flags.request_id_headers;
  }
  ASSIGN_OR_RETURN(options.keys, KeysOfFlags(flags));
  options.connect_timeout = Ms(flags.connect_timeout_secs);
  options.request_timeout = Ms(flags.request_timeout_secs);
  options.stream_idle_timeout = Ms(flags.stream_idle_timeout_secs);
  options.health_timeout = Ms(flags.health_check_timeout_secs);
  options.health_path = flags.health_check_endpoint;
  options.health_checks = !flags.disable_health_check;
  options.load_interval = Ms(flags.load_monitor_interval);
  options.sticky_header = flags.routing_key_header;
  options.access_log = flags.access_log;
  return options;
}

}  // namespace hayate::app
