#include "gateway/cache_aware.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gateway/prefix_tree.h"

namespace hayate::gateway {
namespace {

// Raw JSON text of most prompts; what matters is that all workers are measured alike.
constexpr double kBytesPerToken = 4.0;
// What joining one more running request costs, against computing prompt tokens again.
constexpr double kRequestTokens = 32.0;
// Tokens in flight are computed beside each other, and most of a cached prompt not at all: they
// weigh far less than tokens that this request would have to compute itself. A prompt of 100,000
// tokens still weighs as much as thirty requests. On the traces of tools/bench_cache_aware.py a
// weight of 0.05 costs a hundredth of the hits, and 0.01 nothing.
constexpr double kTokenWeight = 0.01;
// Work given to a worker is forgotten by half in this time; its excess over the least keeps the
// long run even. A tenth more of a steady load weighs about a hundred tokens.
constexpr double kWorkHalfLifeNs = 30e9;
constexpr double kWorkWeight = 0.005;

class CacheAware final : public Policy {
 public:
  explicit CacheAware(const PolicyOptions& options)
      : options_(options),
        tree_({.max_bytes = options.max_tree_bytes,
               .max_age_ns = options.max_age_ns,
               .block_bytes = options.block_bytes}) {}

  size_t Pick(std::span<const Candidate> candidates, const RouteKey& key, int64_t now_ns) override {
    tree_.MakePath(key.prompt, key.seed, path_);
    tree_.Match(path_, now_ns, matched_);
    const size_t chosen = Cheapest(candidates, key, now_ns);
    tree_.Insert(path_, candidates[chosen].slot, now_ns);
    const double uncached =
        static_cast<double>(key.prompt.size() - MatchedBytes(candidates[chosen])) / kBytesPerToken;
    WorkOf(candidates[chosen].slot, now_ns) +=
        uncached + kRequestTokens + static_cast<double>(key.output_tokens);
    return chosen;
  }

  void SetCapacity(uint16_t slot, int64_t tokens) override {
    tree_.SetCapacity(slot, static_cast<uint64_t>(static_cast<double>(tokens) * kBytesPerToken));
  }
  void OnCacheChanges(uint16_t slot, const CacheChanges& changes, int64_t now_ns) override {
    // Blocks of another size have other hashes.
    if (options_.block_bytes != text::kPromptBlockBytes) return;
    if (changes.whole) tree_.Tells(slot);
    for (const uint64_t hash : changes.held) tree_.Hold(hash, slot, now_ns);
    for (const uint64_t hash : changes.dropped) tree_.Drop(hash, slot);
  }
  void Forget(uint16_t slot, WorkerId) override {
    tree_.Forget(slot);
    if (slot < work_.size()) work_[slot] = {};
  }
  size_t bytes() const override { return tree_.bytes(); }

 private:
  // Recent work, decayed.
  struct Work {
    double tokens = 0.0;
    int64_t at_ns = 0;
  };

  size_t MatchedBytes(const Candidate& candidate) const {
    if (candidate.slot >= matched_.size()) return 0;
    const size_t matched = matched_[candidate.slot];
    const auto least = options_.cache_threshold * static_cast<double>(path_length());
    return static_cast<double>(matched) < least ? 0 : matched;
  }
  size_t path_length() const { return path_.ends.empty() ? 0 : path_.ends.back(); }

  double& WorkOf(uint16_t slot, int64_t now_ns) {
    if (slot >= work_.size()) work_.resize(slot + 1);
    Work& work = work_[slot];
    if (now_ns > work.at_ns) {
      const double halves = static_cast<double>(now_ns - work.at_ns) / kWorkHalfLifeNs;
      work.tokens *= std::exp2(-halves);
      work.at_ns = now_ns;
    }
    return work.tokens;
  }

  size_t Cheapest(std::span<const Candidate> candidates, const RouteKey& key, int64_t now_ns) {
    double least_requests = RequestPressure(candidates[0]);
    double least_work = WorkOf(candidates[0].slot, now_ns);
    for (const Candidate& candidate : candidates) {
      least_requests = std::min(least_requests, RequestPressure(candidate));
      least_work = std::min(least_work, WorkOf(candidate.slot, now_ns));
    }
    const size_t start = turn_++ % candidates.size();
    size_t best = candidates.size();
    double best_cost = 0.0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const size_t at = (start + i) % candidates.size();
      const Candidate& candidate = candidates[at];
      const double requests = RequestPressure(candidate);
      if (requests > least_requests + static_cast<double>(options_.balance_abs) &&
          requests > least_requests * options_.balance_rel) {
        continue;
      }
      const double uncached =
          static_cast<double>(key.prompt.size() - MatchedBytes(candidate)) / kBytesPerToken;
      const double cost = uncached + kRequestTokens * (requests - least_requests) +
                          kTokenWeight * static_cast<double>(candidate.tokens) / candidate.weight +
                          kWorkWeight * (WorkOf(candidate.slot, now_ns) - least_work);
      if (best < candidates.size() && cost >= best_cost) continue;
      best = at;
      best_cost = cost;
    }
    return best;
  }

  const PolicyOptions options_;
  PrefixTree tree_;
  PrefixTree::Path path_;          // of the request in hand
  std::vector<uint32_t> matched_;  // by slot
  std::vector<Work> work_;         // by slot
  size_t turn_ = 0;
};

}  // namespace

std::unique_ptr<Policy> MakeCacheAware(const PolicyOptions& options) {
  return std::make_unique<CacheAware>(options);
}

}  // namespace hayate::gateway
