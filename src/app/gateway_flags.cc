#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/gateway_options.h"

namespace hayate::app {
namespace {

// Adds options of one group, each with its default shown.
class Group {
 public:
  Group(CLI::App& command, const char* name) : command_(command), name_(name) {}

  template <typename T>
  CLI::Option* Add(const char* flag, T& value, const char* help) {
    return command_.add_option(flag, value, help)->capture_default_str()->group(name_);
  }
  void Number(const char* flag, double& value, const char* help, double high = 1e9) {
    Add(flag, value, help)->check(NumberBetween(0.0, high));
  }
  template <typename T>
  void Count(const char* flag, T& value, const char* help, int64_t low, int64_t high) {
    Add(flag, value, help)->check(CLI::Range(low, high));
  }
  void Switch(const char* flag, bool& value, const char* help) {
    command_.add_flag(flag, value, help)->group(name_);
  }
  void List(const char* flag, std::vector<std::string>& values, const char* help) {
    command_.add_option(flag, values, help)
        ->expected(1, 10'000)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(name_);
  }

 private:
  CLI::App& command_;
  const char* name_;
};

constexpr int64_t kMany = 1'000'000'000;

void AddListen(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Listen");
  group.Add("--host", f.host, "address to listen on");
  group.Count("--port,-p", f.port, "0 takes any free port", 0, 65535);
  group.Count("--threads,--runtime-worker-threads", f.threads, "threads that serve sockets", 1, 64);
  group.Count("--max-connections", f.max_connections, "beyond it: 503", 1, 1'000'000);
  group.Count("--max-payload-size", f.max_payload_size, "bytes of a request body; beyond it: 413",
              1, int64_t{1} << 40);
  group.Add("--prometheus-host", f.prometheus_host, "address of a second port for metrics");
  group.Count("--prometheus-port", f.prometheus_port,
              "that port; 0: none, metrics are at /metrics anyway", 0, 65535);
}

void AddWorkers(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Workers");
  group.List("--worker-urls", f.worker_urls, "http://host:port of each worker");
  group
      .Add("--worker-api-key", f.worker_api_key,
           "sent to the workers instead of what the client sends")
      ->envname("HAYATE_WORKER_API_KEY");
  group.Switch("--pd-disaggregation", f.pd_disaggregation,
               "workers are prefill/decode pairs (--prefill, --decode)");
  group.List("--prefill", f.prefill, "URL [BOOTSTRAP_PORT] of a prefill worker; may be repeated");
  group.List("--decode", f.decode, "URL of a decode worker; may be repeated");
  group.Switch("--dp-aware", f.dp_aware,
               "each data-parallel rank that a worker tells of is a worker of its own");
  group.Number("--load-monitor-interval", f.load_monitor_interval,
               "seconds between two looks at the workers' load; 0: never");
  group.Count("--cache-event-interval-ms", f.cache_event_interval_ms,
              "between two looks at what workers tell of their caches\n"
              "(hayate serve --enable-cache-events); 0: never",
              0, kMany);
}

void AddTls(CLI::App& command, GatewayFlags& f) {
  Group group(command, "TLS");
  group
      .Add("--tls-cert-path", f.tls_cert_path, "PEM certificate chain; read again when it changes")
      ->check(CLI::ExistingFile);
  group.Add("--tls-key-path", f.tls_key_path, "PEM key of it")->check(CLI::ExistingFile);
  group.Add("--tls-client-ca-path", f.tls_client_ca_path, "clients must prove a certificate of it")
      ->check(CLI::ExistingFile);
  group
      .Add("--ca-cert-path,--ca-cert-paths,--worker-ca-path", f.worker_ca_path,
           "whom to trust for https workers; the system's without it")
      ->check(CLI::ExistingFile);
  group.Add("--client-cert-path", f.worker_cert_path, "shown to workers")->check(CLI::ExistingFile);
  group.Add("--client-key-path", f.worker_key_path, "key of it")->check(CLI::ExistingFile);
  group.Switch("--worker-tls-insecure", f.worker_tls_insecure,
               "do not verify the certificates of workers");
}

void AddDiscovery(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Discovery");
  group.Add("--worker-file", f.worker_file,
            "workers by JSON or one URL a line; followed as it changes");
  group.List("--worker-dns", f.dns, "host:port whose every address is a worker");
  group.Number("--worker-dns-interval-secs", f.dns_interval_secs, "between two look-ups");
  group.Switch("--service-discovery", f.service_discovery, "find workers in Kubernetes");
  group.List("--selector", f.selector, "labels of workers: app=x,tier=y");
  group.List("--prefill-selector", f.prefill_selector, "labels of prefill workers");
  group.List("--decode-selector", f.decode_selector, "labels of decode workers");
  group.Add("--service-discovery-namespace", f.discovery_namespace, "all without it");
  group.Count("--service-discovery-port", f.discovery_port, "of the pods", 1, 65535);
  group.Add("--service-discovery-objects", f.discovery_objects, "what is watched")
      ->check(CLI::IsMember({"pods", "endpointslices"}));
  group.Add("--kube-api-server", f.kube_api_server, "URL; the pod's own API server without it");
}

void AddPolicy(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Policy");
  group.Add("--policy", f.policy.name, "how a worker is chosen")
      ->check(CLI::IsMember(gateway::PolicyNames()));
  group.Add("--prefill-policy", f.prefill_policy, "for prefill workers; as --policy without it")
      ->check(CLI::IsMember(gateway::PolicyNames()));
  group.Add("--decode-policy", f.decode_policy, "for decode workers; power_of_two without it")
      ->check(CLI::IsMember(gateway::PolicyNames()));
  group.Number("--cache-threshold", f.policy.cache_threshold,
               "cache_aware: a shorter match, as a share of the prompt, does not count", 1.0);
  group.Count("--balance-abs-threshold", f.policy.balance_abs,
              "cache_aware: no affinity to a worker so many requests above the least loaded", 0,
              kMany);
  group.Number("--balance-rel-threshold", f.policy.balance_rel,
               "cache_aware: and so many times its load", 1e6);
  group.Count("--max-tree-size", f.policy.max_tree_bytes, "cache_aware: bytes of the prefix tree",
              1 << 16, int64_t{1} << 36);
  group.Count("--block-size", f.block_size_tokens, "cache_aware: tokens of its first blocks", 2,
              1024);
  group.Number("--max-prefix-age-secs", f.max_age_secs,
               "cache_aware: prefixes unused so long are forgotten");
  group.Number("--max-idle-secs", f.max_idle_secs, "sticky: keys unused so long are forgotten");
  group.Add("--routing-key-header", f.routing_key_header,
            "consistent_hash, sticky: the header with the key");
}

void AddLimits(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Limits");
  group.List("--api-key", f.api_keys, "clients must send one of these as a bearer token");
  group
      .Add("--api-key-file", f.api_key_file, "JSON file of keys with limits; read again on SIGHUP")
      ->check(CLI::ExistingFile);
  group.Number("--request-timeout-secs", f.request_timeout_secs, "to the first byte of an answer");
  group.Number("--connect-timeout-secs", f.connect_timeout_secs, "to a worker");
  group.Number("--stream-idle-timeout-secs", f.stream_idle_timeout_secs,
               "between two pieces of an answer");
  group.Count("--max-concurrent-requests", f.max_concurrent_requests,
              "under way at once; -1: no limit", -1, kMany);
  group.Count("--queue-size", f.queue_size,
              "requests that wait beyond them; then 429. As many may\n"
              "wait while no worker is up; then 503",
              0, 1'000'000);
  group.Number("--queue-timeout-secs", f.queue_timeout_secs,
               "of waiting, for room or for a worker");
  group.Number("--rate-limit-requests-per-second,--rate-limit-tokens-per-second", f.rate_limit,
               "requests a second of all clients together; 0: no limit");
}

void AddFailure(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Failure");
  group.Switch("--disable-retries", f.disable_retries, "every request is tried once");
  group.Count("--retry-max-retries", f.retry_max_retries, "after the first attempt", 0, 100);
  group.Count("--retry-initial-backoff-ms", f.retry_initial_backoff_ms, "before the first retry", 0,
              kMany);
  group.Count("--retry-max-backoff-ms", f.retry_max_backoff_ms, "the longest", 0, kMany);
  group.Number("--retry-backoff-multiplier", f.retry_backoff_multiplier, "from retry to retry",
               100.0);
  group.Number("--retry-jitter-factor", f.retry_jitter_factor, "share of the wait, either way",
               1.0);
  group.Count("--hedge-after-ms", f.hedge_after_ms,
              "ask a second worker when the first has not begun to answer; 0: never", 0, kMany);
  group.Number("--hedge-max-share", f.hedge_max_share, "of the requests", 1.0);
  group.Switch("--disable-circuit-breaker", f.disable_circuit_breaker,
               "failing workers are kept in use");
  group.Count("--cb-failure-threshold", f.cb_failure_threshold, "failures in a row that open it", 1,
              kMany);
  group.Count("--cb-success-threshold", f.cb_success_threshold, "probes that close it", 1, kMany);
  group.Number("--cb-timeout-duration-secs", f.cb_timeout_duration_secs, "open, before a probe");
  group.Number("--cb-window-duration-secs", f.cb_window_duration_secs,
               "after which a failure is forgotten");
  group.Switch("--disable-health-check", f.disable_health_check,
               "every worker counts as up until it refuses a connection");
  group.Count("--health-failure-threshold", f.health_failure_threshold,
              "bad checks until a worker is down", 1, 1000);
  group.Count("--health-success-threshold", f.health_success_threshold,
              "good checks until it is up again", 1, 1000);
  group.Number("--health-check-timeout-secs", f.health_check_timeout_secs, "of one check");
  group.Number("--health-check-interval-secs", f.health_check_interval_secs,
               "between checks; a worker that is down is checked every second");
  group.Add("--health-check-endpoint", f.health_check_endpoint, "path that answers 200");
  group.Number("--slow-start-secs", f.slow_start_secs, "a worker that came up is eased in so long");
  group.Switch("--disable-outlier-ejection", f.disable_outlier_ejection,
               "workers that fail more than the others are kept in use");
}

void AddOperation(CLI::App& command, GatewayFlags& f) {
  Group group(command, "Operation");
  group.List("--request-id-headers", f.request_id_headers, "where clients put their request id");
  group.List("--forward-headers", f.forward_headers,
             "only these request headers pass, besides the standard ones");
  group.List("--cors-allowed-origins", f.cors_allowed_origins,
             "origins whose web pages may read answers; * is everybody");
  group.Add("--log-level", f.log_level, "debug, info, warning, error, off");
  group.Add("--access-log", f.access_log, "file for one JSON line a request; - is the output");
  group.Number("--drain-settle-secs", f.drain_settle_secs,
               "on SIGTERM: not ready, but serving, so long", 3600.0);
  group.Number("--shutdown-grace-period-secs", f.shutdown_grace_period_secs,
               "then: time for requests under way", 86400.0);
}

// Flags of sglang-router whose purpose is met otherwise: a start line that has them still works.
void AddWithoutEffect(CLI::App& command, GatewayFlags& f) {
  struct Flag {
    const char* name;
    const char* why;
  };
  constexpr Flag kFlags[] = {
      {"--eviction-interval-secs", "the tree is bounded at each insertion"},
      {"--eviction-interval", "the tree is bounded at each insertion"},
      {"--bucket-adjust-interval-secs", "there is no policy bucket"},
      {"--assignment-mode", "a new key goes to the least busy worker"},
      {"--worker-startup-timeout-secs", "workers join whenever they come up"},
      {"--worker-startup-check-interval", "workers join whenever they come up"},
      {"--backend", "workers are told apart by what they answer"},
      {"--model-path", "prompts are routed as text, without a tokenizer"},
      {"--tokenizer-path", "prompts are routed as text, without a tokenizer"},
      {"--chat-template", "prompts are routed as text, without a template"},
      {"--log-dir", "the log goes to the standard error"},
      {"--prometheus-duration-buckets", "the buckets are fixed"},
  };
  constexpr const char* kGroup = "Of sglang-router, accepted without effect";
  for (const Flag& flag : kFlags) {
    command
        .add_option_function<std::vector<std::string>>(
            flag.name,
            [&f, flag](const std::vector<std::string>&) {
              f.without_effect.push_back(fmt::format("{}: {}", flag.name, flag.why));
            },
            flag.why)
        ->expected(1, 100)
        ->group(kGroup);
  }
  command
      .add_flag_function(
          "--enable-igw",
          [&f](int64_t) { f.without_effect.emplace_back("--enable-igw: always on"); }, "always on")
      ->group(kGroup);
}

}  // namespace

void AddGatewayFlags(CLI::App& command, GatewayFlags& flags) {
  AddListen(command, flags);
  AddWorkers(command, flags);
  AddDiscovery(command, flags);
  AddPolicy(command, flags);
  AddLimits(command, flags);
  AddFailure(command, flags);
  AddTls(command, flags);
  AddOperation(command, flags);
  AddWithoutEffect(command, flags);
}

}  // namespace hayate::app
