#include "gateway/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/rng.h"

namespace hayate::gateway {
namespace {

std::unique_ptr<Policy> Make(const char* name) {
  PolicyOptions options;
  options.name = name;
  return std::move(MakePolicy(options)).value();
}

std::vector<Candidate> Fleet(int count) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (int i = 0; i < 64; ++i) out.push_back("http://worker-" + std::to_string(i) + ":30000");
    return out;
  }();
  std::vector<Candidate> fleet;
  for (int i = 0; i < count; ++i) {
    fleet.push_back({.id = WorkerId{static_cast<uint32_t>(i + 1)},
                     .slot = static_cast<uint16_t>(i),
                     .name = names[i]});
  }
  return fleet;
}

TEST(Policy, NamesOfSglangRouterAreKnownAndOthersAreNot) {
  for (const std::string& name : PolicyNames()) {
    PolicyOptions options;
    options.name = name;
    EXPECT_TRUE(MakePolicy(options).ok()) << name;
  }
  PolicyOptions options;
  options.name = "best";
  EXPECT_FALSE(MakePolicy(options).ok());
}

TEST(Policy, RoundRobinTakesTurnsAlsoWhenOneIsMissing) {
  auto policy = Make("round_robin");
  auto fleet = Fleet(3);
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 0u);
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 1u);
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 2u);
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 0u);
  fleet.erase(fleet.begin() + 1);
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 1u);  // the third worker
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 0u);
}

TEST(Policy, LeastLoadPrefersFewerTokensAndSparesANewWorker) {
  auto policy = Make("least_load");
  auto fleet = Fleet(3);
  fleet[0].tokens = 5000;
  fleet[1].tokens = 10;
  fleet[2].tokens = 5000;
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 1u);
  fleet[1].weight = 0.1;
  fleet[1].requests = 5;
  fleet[0].tokens = fleet[2].tokens = 1000;
  EXPECT_NE(policy->Pick(fleet, {}, 0), 1u);
}

TEST(Policy, AlmostFullCachesRepel) {
  auto policy = Make("least_load");
  auto fleet = Fleet(2);
  fleet[0].token_usage = 0.99;
  fleet[1].requests = 10;
  EXPECT_EQ(policy->Pick(fleet, {}, 0), 1u);
}

TEST(Policy, ConsistentHashMovesOnlyTheKeysOfTheWorkerThatLeft) {
  auto policy = Make("consistent_hash");
  const auto fleet = Fleet(8);
  std::map<std::string, WorkerId> homes;
  std::map<WorkerId, int> shares;
  for (int i = 0; i < 4000; ++i) {
    const std::string key = "user-" + std::to_string(i);
    homes[key] = fleet[policy->Pick(fleet, {.sticky = key}, 0)].id;
    ++shares[homes[key]];
  }
  for (const auto& [id, share] : shares) {
    EXPECT_GT(share, 250);
    EXPECT_LT(share, 900);
  }
  auto smaller = fleet;
  smaller.erase(smaller.begin() + 3);
  for (const auto& [key, home] : homes) {
    const WorkerId now = smaller[policy->Pick(smaller, {.sticky = key}, 0)].id;
    if (home != fleet[3].id) {
      EXPECT_EQ(now, home) << key;
    }
  }
}

TEST(Policy, StickyKeysStayUntilTheirWorkerIsGoneOrTheyAreIdle) {
  PolicyOptions options;
  options.name = "sticky";
  options.max_idle_ns = 100;
  options.max_sticky_keys = 50;
  auto policy = std::move(MakePolicy(options)).value();
  auto fleet = Fleet(4);
  const size_t home = policy->Pick(fleet, {.sticky = "k"}, 0);
  for (int i = 1; i < 10; ++i) {
    fleet[home].requests = 1000;
    EXPECT_EQ(policy->Pick(fleet, {.sticky = "k"}, i * 50), home);
  }
  EXPECT_NE(policy->Pick(fleet, {.sticky = "k"}, 1000), home);  // forgotten, and that one is busy
  for (int i = 0; i < 500; ++i) policy->Pick(fleet, {.sticky = std::to_string(i)}, 1000);
  EXPECT_LE(policy->bytes(), 50u * 200u);
}

// Closed-loop traffic of `concurrency` requests on mock workers; counts who got how many.
struct Served {
  std::vector<int> counts;
  int most_behind = 0;  // largest difference of in-flight requests between two workers
};
Served Serve(Policy& policy, int workers, int concurrency, int total,
             const std::function<std::string(int)>& prompt,
             const std::function<int64_t(size_t)>& took_ms, int64_t output_tokens = 256) {
  auto fleet = Fleet(workers);
  Served served{.counts = std::vector<int>(workers)};
  std::multimap<int64_t, std::pair<size_t, int64_t>> running;  // end → worker, tokens
  int64_t now_ms = 0;
  for (int i = 0; i < total; ++i) {
    if (static_cast<int>(running.size()) == concurrency) {
      now_ms = running.begin()->first;
      const auto [worker, tokens] = running.begin()->second;
      --fleet[worker].requests;
      fleet[worker].tokens -= tokens;
      running.erase(running.begin());
    }
    const std::string text = prompt(i);
    const auto prompt_tokens = static_cast<int64_t>(text.size() / 4);
    const size_t worker = policy.Pick(
        fleet, {.prompt = text, .prompt_tokens = prompt_tokens, .output_tokens = output_tokens},
        now_ms * 1'000'000);
    ++served.counts[worker];
    ++fleet[worker].requests;
    fleet[worker].tokens += prompt_tokens + output_tokens;
    running.emplace(now_ms + took_ms(worker), std::pair(worker, prompt_tokens + output_tokens));
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (const Candidate& candidate : fleet) {
      least = std::min(least, candidate.requests);
      most = std::max(most, candidate.requests);
    }
    served.most_behind = std::max(served.most_behind, static_cast<int>(most - least));
  }
  return served;
}

std::string Distinct(int i) {
  Rng rng(static_cast<uint64_t>(i) + 1000);
  std::string text(2048, ' ');
  for (char& c : text) c = static_cast<char>('a' + rng.Below(26));
  return text;
}

TEST(CacheAware, DistinctPromptsSpreadEvenly) {
  for (const int64_t output : {1, 256}) {
    auto policy = Make("cache_aware");
    const Served served = Serve(
        *policy, 4, 32, 400, Distinct, [](size_t) { return 200; }, output);
    for (int count : served.counts) {
      EXPECT_GE(count, 60);
      EXPECT_LE(count, 140);
    }
  }
}

TEST(CacheAware, AHotPrefixStaysTogetherUntilItsWorkerIsTooBusy) {
  auto policy = Make("cache_aware");
  const std::string prefix = Distinct(1);
  const auto same = [&](int i) { return prefix + std::to_string(i); };
  const Served calm = Serve(*policy, 4, 2, 100, same, [](size_t) { return 200; });
  EXPECT_GE(*std::max_element(calm.counts.begin(), calm.counts.end()), 50);
  const Served busy = Serve(*policy, 4, 64, 400, same, [](size_t) { return 200; });
  EXPECT_LE(busy.most_behind, 16 + 8);
  for (int count : busy.counts) EXPECT_GT(count, 20);
}

TEST(CacheAware, ASlowWorkerGetsLess) {
  auto policy = Make("cache_aware");
  const Served served =
      Serve(*policy, 4, 32, 1000, Distinct, [](size_t worker) { return worker == 0 ? 4000 : 200; });
  EXPECT_LT(served.counts[0], 100);
}

TEST(CacheAware, ARestartedWorkerIsNotFlooded) {
  auto policy = Make("cache_aware");
  (void)Serve(*policy, 4, 32, 400, Distinct, [](size_t) { return 200; });
  policy->Forget(2, WorkerId{3});
  const Served served = Serve(
      *policy, 4, 32, 400, [](int i) { return Distinct(i + 5000); }, [](size_t) { return 200; });
  EXPECT_LT(served.counts[2], 160);
}

}  // namespace
}  // namespace hayate::gateway
