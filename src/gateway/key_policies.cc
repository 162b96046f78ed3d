#include "gateway/key_policies.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <list>
#include <unordered_map>

namespace hayate::gateway {
namespace {

// So much of a prompt stands in for a key that is not there.
constexpr size_t kKeyPromptBytes = 1024;
constexpr uint64_t kPointsPerWorker = 160;

uint64_t HashOf(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

size_t LeastLoaded(std::span<const Candidate> candidates, size_t start) {
  size_t best = start % candidates.size();
  for (size_t i = 1; i < candidates.size(); ++i) {
    const size_t at = (start + i) % candidates.size();
    if (RequestPressure(candidates[at]) < RequestPressure(candidates[best])) best = at;
  }
  return best;
}

class ConsistentHash final : public Policy {
 public:
  size_t Pick(std::span<const Candidate> candidates, const RouteKey& key, int64_t) override {
    const std::string_view text =
        key.sticky.empty() ? key.prompt.substr(0, kKeyPromptBytes) : key.sticky;
    if (text.empty()) return LeastLoaded(candidates, turn_++);
    Rebuild(candidates);
    const uint64_t hash = HashOf(text, key.sticky.empty() ? key.seed : 0);
    auto point = std::lower_bound(ring_.begin(), ring_.end(), hash,
                                  [](const Point& p, uint64_t h) { return p.hash < h; });
    if (point == ring_.end()) point = ring_.begin();
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].id == point->id) return i;
    }
    return 0;
  }

 private:
  struct Point {
    uint64_t hash;
    WorkerId id;
  };

  // The ring holds exactly the candidates; between two calls they are mostly the same.
  void Rebuild(std::span<const Candidate> candidates) {
    const auto same = [](const Candidate& c, WorkerId id) { return c.id == id; };
    if (std::equal(candidates.begin(), candidates.end(), members_.begin(), members_.end(), same)) {
      return;
    }
    members_.clear();
    ring_.clear();
    for (const Candidate& candidate : candidates) {
      members_.push_back(candidate.id);
      for (uint64_t i = 0; i < kPointsPerWorker; ++i) {
        ring_.push_back({HashOf(candidate.name, i), candidate.id});
      }
    }
    std::sort(ring_.begin(), ring_.end(), [](const Point& a, const Point& b) {
      return a.hash != b.hash ? a.hash < b.hash : a.id < b.id;
    });
  }

  std::vector<WorkerId> members_;
  std::vector<Point> ring_;
  size_t turn_ = 0;
};

class Sticky final : public Policy {
 public:
  explicit Sticky(const PolicyOptions& options) : options_(options) {}

  size_t Pick(std::span<const Candidate> candidates, const RouteKey& key, int64_t now_ns) override {
    if (key.sticky.empty()) return LeastLoaded(candidates, turn_++);
    Expire(now_ns);
    const uint64_t hash = HashOf(key.sticky, 0);
    if (const auto found = places_.find(hash); found != places_.end()) {
      Place& place = *found->second;
      place.used_ns = now_ns;
      order_.splice(order_.end(), order_, found->second);
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (candidates[i].id == place.id) return i;
      }
      const size_t moved = LeastLoaded(candidates, turn_++);
      place.id = candidates[moved].id;
      return moved;
    }
    const size_t chosen = LeastLoaded(candidates, turn_++);
    order_.push_back({hash, candidates[chosen].id, now_ns});
    places_[hash] = std::prev(order_.end());
    return chosen;
  }

  size_t bytes() const override { return places_.size() * (sizeof(Place) + 64); }

 private:
  struct Place {
    uint64_t hash;
    WorkerId id;
    int64_t used_ns;
  };

  void Expire(int64_t now_ns) {
    while (!order_.empty() && (order_.front().used_ns + options_.max_idle_ns < now_ns ||
                               order_.size() >= options_.max_sticky_keys)) {
      places_.erase(order_.front().hash);
      order_.pop_front();
    }
  }

  const PolicyOptions options_;
  std::list<Place> order_;  // the longest unused first
  std::unordered_map<uint64_t, std::list<Place>::iterator> places_;
  size_t turn_ = 0;
};

}  // namespace

std::unique_ptr<Policy> MakeConsistentHash(const PolicyOptions&) {
  return std::make_unique<ConsistentHash>();
}

std::unique_ptr<Policy> MakeSticky(const PolicyOptions& options) {
  return std::make_unique<Sticky>(options);
}

}  // namespace hayate::gateway
