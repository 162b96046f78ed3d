#pragma once
// What the gateway does with a path.

#include <string_view>

namespace hayate::gateway {

enum class RouteKind {
  kInference,   // to one worker, or to a pair; counted against limits
  kAnyWorker,   // to one worker, whichever: facts about the model, tokenizing
  kAllWorkers,  // to every worker, answers gathered
  kOwn,         // answered here
};

// How an error that ends a stream is written.
enum class StreamDialect { kOpenAi, kAnthropic };

struct Route {
  RouteKind kind = RouteKind::kInference;
  // Doing it twice harms nobody: inference and reading.
  bool safe = false;
  bool open = false;  // needs no key: probes and metrics
  StreamDialect dialect = StreamDialect::kOpenAi;
  std::string_view id_prefix = "req-";  // of request ids made here
};

// Every path has a route: what is not known goes to a worker, not repeated when it changes
// something.
Route RouteOf(std::string_view method, std::string_view path);

}  // namespace hayate::gateway
