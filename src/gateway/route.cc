#include "gateway/route.h"

#include <algorithm>
#include <array>

namespace hayate::gateway {
namespace {

struct InferencePath {
  std::string_view path;
  std::string_view id_prefix;
};
constexpr std::array kInference = {
    InferencePath{"/v1/chat/completions", "chatcmpl-"},
    InferencePath{"/v1/completions", "cmpl-"},
    InferencePath{"/generate", "gnt-"},
    InferencePath{"/v1/responses", "resp-"},
    InferencePath{"/v1/messages", "msg_"},
    InferencePath{"/v1/embeddings", "emb-"},
    InferencePath{"/v1/rerank", "rerank-"},
    InferencePath{"/rerank", "rerank-"},
    InferencePath{"/v1/score", "score-"},
    InferencePath{"/v1/classify", "cls-"},
    InferencePath{"/classify", "cls-"},
    InferencePath{"/encode", "enc-"},
    InferencePath{"/api/chat", "chatcmpl-"},
    InferencePath{"/api/generate", "cmpl-"},
};
constexpr std::array<std::string_view, 9> kAnyWorkerSafe = {"/tokenize",
                                                            "/v1/tokenize",
                                                            "/detokenize",
                                                            "/v1/detokenize",
                                                            "/parse/reasoning",
                                                            "/parse_function_call",
                                                            "/parse/function_call",
                                                            "/separate_reasoning",
                                                            "/v1/messages/count_tokens"};
constexpr std::array<std::string_view, 9> kAllWorkers = {
    "/flush_cache",        "/abort_request",
    "/start_profile",      "/stop_profile",
    "/pause_generation",   "/continue_generation",
    "/set_internal_state", "/clear_hicache_storage_backend",
    "/engine_metrics"};
constexpr std::array<std::string_view, 5> kOwnExact = {"/get_loads", "/v1/loads", "/add_worker",
                                                       "/remove_worker", "/list_workers"};
constexpr std::array<std::string_view, 9> kProbes = {"/health",   "/healthz",   "/livez",
                                                     "/liveness", "/readiness", "/readyz",
                                                     "/metrics",  "/ping",      "/ready"};

template <typename List>
bool Holds(const List& list, std::string_view path) {
  return std::find(list.begin(), list.end(), path) != list.end();
}

}  // namespace

Route RouteOf(std::string_view method, std::string_view path) {
  const bool reads = method == "GET" || method == "HEAD";
  if (Holds(kProbes, path)) return {.kind = RouteKind::kOwn, .safe = true, .open = true};
  if (Holds(kOwnExact, path) || path == "/workers" || path.starts_with("/workers/")) {
    return {.kind = RouteKind::kOwn};
  }
  if (reads && (path == "/v1/models" || path.starts_with("/v1/models/"))) {
    return {.kind = RouteKind::kOwn, .safe = true};
  }
  for (const InferencePath& inference : kInference) {
    if (path != inference.path || (method != "POST" && method != "PUT")) continue;
    return {.kind = RouteKind::kInference,
            .safe = true,
            .dialect = path == "/v1/messages" ? StreamDialect::kAnthropic : StreamDialect::kOpenAi,
            .id_prefix = inference.id_prefix};
  }
  if (Holds(kAllWorkers, path)) return {.kind = RouteKind::kAllWorkers};
  return {.kind = RouteKind::kAnyWorker, .safe = reads || Holds(kAnyWorkerSafe, path)};
}

}  // namespace hayate::gateway
