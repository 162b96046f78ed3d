#include "gateway/policy.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "gateway/cache_aware.h"
#include "gateway/key_policies.h"

namespace hayate::gateway {
namespace {

// One running request keeps a worker about as busy as this many tokens of prompt.
constexpr double kTokensPerRequest = 64.0;
// A KV cache near its end makes a worker wait: as if it had this many tokens more to do when full.
constexpr double kFullCacheTokens = 8192.0;

class RoundRobin final : public Policy {
 public:
  size_t Pick(std::span<const Candidate> candidates, const RouteKey&, int64_t) override {
    // By id and not by position, so that a worker that leaves for a moment shifts nobody's turn.
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].id > last_) return Take(candidates, i);
    }
    return Take(candidates, 0);
  }

 private:
  size_t Take(std::span<const Candidate> candidates, size_t index) {
    last_ = candidates[index].id;
    return index;
  }
  WorkerId last_{0};
};

class Random final : public Policy {
 public:
  explicit Random(uint64_t seed) : rng_(seed) {}
  size_t Pick(std::span<const Candidate> candidates, const RouteKey&, int64_t) override {
    return rng_.Below(static_cast<uint32_t>(candidates.size()));
  }

 private:
  Rng rng_;
};

class PowerOfTwo final : public Policy {
 public:
  explicit PowerOfTwo(uint64_t seed) : rng_(seed) {}
  size_t Pick(std::span<const Candidate> candidates, const RouteKey&, int64_t) override {
    const auto count = static_cast<uint32_t>(candidates.size());
    if (count == 1) return 0;
    const uint32_t first = rng_.Below(count);
    uint32_t second = rng_.Below(count - 1);
    if (second >= first) ++second;
    return RequestPressure(candidates[second]) < RequestPressure(candidates[first]) ? second
                                                                                    : first;
  }

 private:
  Rng rng_;
};

// Ties go round, or an idle fleet would send everything to its first worker.
class LeastLoad final : public Policy {
 public:
  size_t Pick(std::span<const Candidate> candidates, const RouteKey&, int64_t) override {
    const size_t start = turn_++ % candidates.size();
    size_t best = start;
    for (size_t i = 1; i < candidates.size(); ++i) {
      const size_t at = (start + i) % candidates.size();
      if (TokenPressure(candidates[at]) < TokenPressure(candidates[best])) best = at;
    }
    return best;
  }

 private:
  size_t turn_ = 0;
};

class Passthrough final : public Policy {
 public:
  size_t Pick(std::span<const Candidate>, const RouteKey&, int64_t) override { return 0; }
};

}  // namespace

double RequestPressure(const Candidate& candidate) {
  return static_cast<double>(candidate.requests + candidate.waiting + 1) / candidate.weight;
}

double TokenPressure(const Candidate& candidate) {
  const double work =
      static_cast<double>(candidate.tokens) +
      kTokensPerRequest * static_cast<double>(candidate.requests + candidate.waiting + 1);
  const double usage = candidate.token_usage;
  return work / candidate.weight + kFullCacheTokens * usage * usage * usage * usage;
}

std::vector<std::string> PolicyNames() {
  return {"round_robin",        "random", "power_of_two", "least_load",  "consistent_hash",
          "consistent_hashing", "sticky", "manual",       "cache_aware", "passthrough"};
}

Result<std::unique_ptr<Policy>> MakePolicy(const PolicyOptions& options) {
  const std::string& name = options.name;
  std::unique_ptr<Policy> made;
  if (name == "round_robin") made = std::make_unique<RoundRobin>();
  if (name == "random") made = std::make_unique<Random>(options.seed);
  if (name == "power_of_two") made = std::make_unique<PowerOfTwo>(options.seed);
  if (name == "least_load") made = std::make_unique<LeastLoad>();
  if (name == "passthrough") made = std::make_unique<Passthrough>();
  if (name == "cache_aware") made = MakeCacheAware(options);
  if (name == "consistent_hash" || name == "consistent_hashing") {
    made = MakeConsistentHash(options);
  }
  if (name == "sticky" || name == "manual") made = MakeSticky(options);
  if (made == nullptr) return Error(ErrorCode::kInvalidArgument, "no policy is named \"{}\"", name);
  return made;
}

}  // namespace hayate::gateway
