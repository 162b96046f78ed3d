#pragma once
// The command line of `hayate gateway`, named as sglang-router names it, and what it turns into.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gateway/discovery.h"
#include "gateway/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hayate::app {

struct GatewayFlags {
  // Listen
  std::string host = "127.0.0.1";
  int port = 30000;
  int threads = 1;
  int max_connections = 16384;
  int64_t max_payload_size = 512 << 20;
  std::string prometheus_host = "127.0.0.1";
  int prometheus_port = 0;
  // Workers
  std::vector<std::string> worker_urls;
  std::string worker_api_key;
  bool pd_disaggregation = false;
  std::vector<std::string> prefill;
  std::vector<std::string> decode;
  double load_monitor_interval = 10.0;
  int64_t cache_event_interval_ms = 250;
  bool dp_aware = false;
  // TLS
  std::string tls_cert_path;
  std::string tls_key_path;
  std::string tls_client_ca_path;
  std::string worker_ca_path;
  std::string worker_cert_path;
  std::string worker_key_path;
  bool worker_tls_insecure = false;
  // Discovery
  std::string worker_file;
  std::vector<std::string> dns;
  double dns_interval_secs = 10.0;
  bool service_discovery = false;
  std::vector<std::string> selector;
  std::vector<std::string> prefill_selector;
  std::vector<std::string> decode_selector;
  std::string discovery_namespace;
  int discovery_port = 80;
  std::string discovery_objects = "pods";
  std::string kube_api_server;
  // Policy
  gateway::PolicyOptions policy;
  std::string prefill_policy;
  std::string decode_policy;
  int64_t block_size_tokens = 16;
  double max_age_secs = 3600.0;
  double max_idle_secs = 14400.0;
  std::string routing_key_header = "x-sgl-routing-key";
  // Limits
  std::vector<std::string> api_keys;
  std::string api_key_file;
  double request_timeout_secs = 1800.0;
  double connect_timeout_secs = 5.0;
  double stream_idle_timeout_secs = 600.0;
  int64_t max_concurrent_requests = -1;
  int64_t queue_size = 100;
  double queue_timeout_secs = 60.0;
  double rate_limit = 0.0;
  // Failure
  bool disable_retries = false;
  int retry_max_retries = 5;
  int64_t retry_initial_backoff_ms = 50;
  int64_t retry_max_backoff_ms = 30000;
  double retry_backoff_multiplier = 1.5;
  double retry_jitter_factor = 0.2;
  int64_t hedge_after_ms = 0;
  double hedge_max_share = 0.05;
  bool disable_circuit_breaker = false;
  int cb_failure_threshold = 10;
  int cb_success_threshold = 3;
  double cb_timeout_duration_secs = 60.0;
  double cb_window_duration_secs = 120.0;
  bool disable_health_check = false;
  int health_failure_threshold = 3;
  int health_success_threshold = 2;
  double health_check_timeout_secs = 5.0;
  double health_check_interval_secs = 10.0;
  std::string health_check_endpoint = "/health";
  double slow_start_secs = 10.0;
  bool disable_outlier_ejection = false;
  // Headers, logs, life
  std::vector<std::string> request_id_headers;
  std::vector<std::string> forward_headers;
  std::vector<std::string> cors_allowed_origins;
  std::string log_level = "info";
  std::string access_log;
  double drain_settle_secs = 2.0;
  double shutdown_grace_period_secs = 180.0;
  // sglang-router's flags that were given and mean nothing here, each with the reason.
  std::vector<std::string> without_effect;
};

void AddGatewayFlags(CLI::App& command, GatewayFlags& flags);

// kInvalidArgument names the flag. Reads the key file.
Result<gateway::GatewayOptions> ResolveGatewayOptions(const GatewayFlags& flags);

// The workers that the flags name: --worker-urls, --prefill URL [PORT], --decode URL.
Result<std::vector<gateway::WorkerSpec>> WorkersOfFlags(const GatewayFlags& flags);

Result<gateway::DiscoveryOptions> DiscoveryOfFlags(const GatewayFlags& flags);

// Null without --tls-cert-path.
Result<std::shared_ptr<http::TlsIdentity>> TlsOfFlags(const GatewayFlags& flags);

// --api-key and the file together.
Result<std::vector<gateway::ApiKey>> KeysOfFlags(const GatewayFlags& flags);

}  // namespace hayate::app
