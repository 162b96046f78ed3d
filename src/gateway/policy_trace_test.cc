// cache_aware against an oracle on a multi-turn trace: eight workers with caches of limited size,
// conversations with skewed system prompts, turns interleaved. The oracle knows every worker's
// cache and its load; the policy only guesses.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <list>
#include <map>
#include <unordered_map>

#include "base/rng.h"
#include "gateway/policy.h"

namespace hayate::gateway {
namespace {

constexpr int kWorkers = 8;
constexpr size_t kBlock = 64;

// A worker's real prefix cache: an LRU of chained block hashes.
class RealCache {
 public:
  explicit RealCache(size_t max_blocks) : max_blocks_(max_blocks) {}

  size_t Match(const std::vector<uint64_t>& blocks) const {
    size_t matched = 0;
    while (matched < blocks.size() && where_.contains(blocks[matched])) ++matched;
    return matched;
  }
  void Insert(const std::vector<uint64_t>& blocks) {
    for (size_t i = blocks.size(); i-- > 0;) {
      if (const auto it = where_.find(blocks[i]); it != where_.end()) lru_.erase(it->second);
      lru_.push_back(blocks[i]);
      where_[blocks[i]] = std::prev(lru_.end());
    }
    while (lru_.size() > max_blocks_) {
      where_.erase(lru_.front());
      lru_.pop_front();
    }
  }

 private:
  size_t max_blocks_;
  std::list<uint64_t> lru_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> where_;
};

std::vector<uint64_t> Blocks(std::string_view text) {
  std::vector<uint64_t> blocks;
  uint64_t hash = 1469598103934665603u;
  for (size_t at = 0; at + kBlock <= text.size(); at += kBlock) {
    for (size_t i = 0; i < kBlock; ++i)
      hash = (hash ^ static_cast<uint8_t>(text[at + i])) * 1099511628211u;
    blocks.push_back(hash);
  }
  return blocks;
}

std::string Words(Rng& rng, size_t size) {
  std::string text(size, ' ');
  for (char& c : text) c = static_cast<char>('a' + rng.Below(26));
  return text;
}

// Conversations: a system prompt drawn by Zipf, then turns that each add a question and an answer.
std::vector<std::string> MakeTrace(uint64_t seed) {
  Rng rng(seed);
  std::vector<std::string> systems;
  for (int i = 0; i < 20; ++i) systems.push_back(Words(rng, 2048 + rng.Below(4096)));
  std::vector<double> odds;
  double total = 0.0;
  for (int i = 0; i < 20; ++i) odds.push_back(total += 1.0 / (i + 1));
  struct Conversation {
    std::string text;
    int turns_left;
  };
  std::vector<Conversation> open;
  std::vector<std::string> trace;
  while (trace.size() < 6000) {
    if (open.size() < 150) {
      const double roll = rng.NextFloat() * total;
      size_t system = 0;
      while (odds[system] < roll) ++system;
      open.push_back({systems[system], 2 + static_cast<int>(rng.Below(10))});
    }
    const size_t at = rng.Below(static_cast<uint32_t>(open.size()));
    open[at].text += Words(rng, 100 + rng.Below(400));
    trace.push_back(open[at].text);
    open[at].text += Words(rng, 200 + rng.Below(800));
    if (--open[at].turns_left == 0) open.erase(open.begin() + static_cast<long>(at));
  }
  return trace;
}

struct Outcome {
  double hit_rate = 0.0;
  double imbalance = 0.0;  // of requests: the busiest worker over the mean
};

// `choose` gets the fleet and the real matches of each worker.
Outcome Play(const std::vector<std::string>& trace,
             const std::function<size_t(std::span<const Candidate>, const std::string&,
                                        const std::vector<size_t>&, int64_t)>& choose) {
  std::vector<RealCache> caches(kWorkers, RealCache(6000));
  std::vector<Candidate> fleet;
  for (int i = 0; i < kWorkers; ++i) {
    fleet.push_back(
        {.id = WorkerId{static_cast<uint32_t>(i + 1)}, .slot = static_cast<uint16_t>(i)});
  }
  std::vector<int> counts(kWorkers);
  struct Running {
    size_t worker;
    int64_t tokens;
  };
  std::multimap<int64_t, Running> running;
  size_t hit = 0;
  size_t all = 0;
  int64_t now_us = 0;
  for (const std::string& text : trace) {
    now_us += 12'500;  // 80 requests a second
    while (!running.empty() && running.begin()->first <= now_us) {
      const Running done = running.begin()->second;
      --fleet[done.worker].requests;
      fleet[done.worker].tokens -= done.tokens;
      running.erase(running.begin());
    }
    const auto blocks = Blocks(text);
    std::vector<size_t> matches;
    for (const RealCache& cache : caches) matches.push_back(cache.Match(blocks));
    const size_t worker = choose(fleet, text, matches, now_us * 1000);
    hit += matches[worker];
    all += blocks.size();
    const size_t uncached = blocks.size() - matches[worker];
    caches[worker].Insert(blocks);
    ++counts[worker];
    ++fleet[worker].requests;
    const auto tokens = static_cast<int64_t>(text.size() / 4 + 128);
    fleet[worker].tokens += tokens;
    // 128 tokens at 100 a second, and the prompt at 10,000.
    const auto took_us = static_cast<int64_t>(1'280'000 + uncached * kBlock / 4 * 100);
    running.emplace(now_us + took_us, Running{worker, tokens});
  }
  const int most = *std::max_element(counts.begin(), counts.end());
  return {.hit_rate = static_cast<double>(hit) / static_cast<double>(all),
          .imbalance = most * kWorkers / static_cast<double>(trace.size())};
}

Outcome PlayPolicy(const std::vector<std::string>& trace, const char* name) {
  PolicyOptions options;
  options.name = name;
  auto policy = std::move(MakePolicy(options)).value();
  for (uint16_t slot = 0; slot < kWorkers; ++slot) policy->SetCapacity(slot, 6000 * kBlock / 4);
  return Play(trace, [&](std::span<const Candidate> fleet, const std::string& text,
                         const std::vector<size_t>&, int64_t now_ns) {
    const auto tokens = static_cast<int64_t>(text.size() / 4);
    return policy->Pick(fleet, {.prompt = text, .prompt_tokens = tokens, .output_tokens = 128},
                        now_ns);
  });
}

// The longest real match among workers that are not ahead of the others.
Outcome PlayOracle(const std::vector<std::string>& trace) {
  std::vector<int> given(kWorkers);
  return Play(trace, [&](std::span<const Candidate>, const std::string&,
                         const std::vector<size_t>& matches, int64_t) {
    const int least = *std::min_element(given.begin(), given.end());
    size_t best = kWorkers;
    for (size_t i = 0; i < kWorkers; ++i) {
      if (given[i] > least * 1.2 + 8) continue;
      if (best == kWorkers || matches[i] > matches[best] ||
          (matches[i] == matches[best] && given[i] < given[best])) {
        best = i;
      }
    }
    ++given[best];
    return best;
  });
}

TEST(CacheAwareTrace, ComesWithinFivePercentOfAnOracleAndStaysBalanced) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto trace = MakeTrace(seed);
    const Outcome oracle = PlayOracle(trace);
    const Outcome ours = PlayPolicy(trace, "cache_aware");
    const Outcome blind = PlayPolicy(trace, "round_robin");
    EXPECT_GE(ours.hit_rate, 0.95 * oracle.hit_rate)
        << "oracle " << oracle.hit_rate << ", blind " << blind.hit_rate;
    EXPECT_LE(ours.imbalance, 1.2) << "oracle " << oracle.imbalance;
    EXPECT_GT(ours.hit_rate, blind.hit_rate + 0.1);
    printf("oracle %.4f/%.3f ours %.4f/%.3f blind %.4f\n", oracle.hit_rate, oracle.imbalance,
           ours.hit_rate, ours.imbalance, blind.hit_rate);
  }
}

}  // namespace
}  // namespace hayate::gateway
