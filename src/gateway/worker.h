#pragma once
// A worker as the gateway knows it: who it is, and what it was last seen to be.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace hayate::gateway {

// Never reused: a worker that leaves and returns is another one.
using WorkerId = StrongId<struct WorkerTag, uint32_t>;

enum class WorkerRole : uint8_t { kRegular, kPrefill, kDecode };
std::string_view RoleName(WorkerRole role);

// How a worker was named: by a flag, a file, discovery or POST /workers.
struct WorkerSpec {
  std::string url;  // "http://host:port[/base]", no slash at its end
  WorkerRole role = WorkerRole::kRegular;
  std::string model;           // empty: what the worker says of itself
  std::string api_key;         // sent instead of the client's when set
  int bootstrap_port = 0;      // prefill workers; 0: null in requests, the worker's own default
  int dp_rank = -1;            // one data-parallel rank of the process at `url`; -1: all of it
  std::string source = "api";  // who added it; discovery removes only its own

  bool operator==(const WorkerSpec&) const = default;
};

enum class WorkerState : uint8_t {
  kPending,   // not yet seen healthy
  kReady,     // takes requests, when its breaker lets them
  kDown,      // failed its health checks or refused a connection
  kDraining,  // finishes what it has and takes nothing new
};
std::string_view StateName(WorkerState state);

// "http://host:port", and "@rank" for a rank: what tells workers apart.
std::string NameOf(const WorkerSpec& spec);

// What a worker said of itself (/server_info, /model_info, /v1/models). Zeros where it did not.
struct WorkerFacts {
  std::vector<std::string> models;  // served names, the first is its own
  int64_t max_total_tokens = 0;     // of its KV cache
  int64_t max_running_requests = 0;
  int64_t dp_size = 1;
  bool role_known = false;
  WorkerRole role = WorkerRole::kRegular;
  bool tells_cache = false;  // has GET /v1/cache_events
};

// How far a worker's telling of its cache was read; the default asks for all of it.
struct CacheCursor {
  uint64_t epoch = 0;  // of the worker's process
  uint64_t next = 0;   // changes before were read

  bool operator==(const CacheCursor&) const = default;
};

// What it told since then, as hashes of text/prompt_blocks.h.
struct CacheChanges {
  CacheCursor cursor;  // to go on from
  bool whole = false;  // `held` is all that it holds; else changes
  bool more = false;   // has more to tell at once
  std::vector<uint64_t> held;
  std::vector<uint64_t> dropped;
};

// What it last reported of its load (/v1/loads).
struct ReportedLoad {
  int64_t at_ns = 0;  // 0: never
  int64_t running = 0;
  int64_t waiting = 0;
  double token_usage = 0.0;  // of its KV cache, 0 to 1
};

}  // namespace hayate::gateway
