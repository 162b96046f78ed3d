// The cache from outside: sequences come, grow, share and go while a simulated device carries the
// plans out late and checks all that they read.

#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kv/testing/simulated_device.h"

namespace hayate::kv {
namespace {

struct Running {
  std::string name_space;
  Tokens tokens;
  std::unique_ptr<SequenceCache> cache;
  int32_t num_planned = 0;   // positions that some plan computes
  int32_t num_computed = 0;  // positions whose steps are done

  void Publish(int32_t num_tokens) { cache->Publish(tokens, num_tokens); }
};

class CacheTrial {
 public:
  CacheTrial(uint64_t seed, PrefixReuse reuse) : rng_(seed) {
    options_.layout = RandomLayout();
    options_.reuse = reuse;
    for (size_t g = 0; g < options_.layout.groups.size(); ++g) {
      options_.num_pages.push_back(rng_.Between(10, 40));
    }
    cache_ = KvCache::Create(options_).value();
    device_.emplace(cache_->layout(), options_.num_pages);
  }

  void Run(int num_steps) {
    for (int i = 0; i < num_steps && !::testing::Test::HasFailure(); ++i) {
      PlanStep();
      Check();
      while (in_flight_.size() > 1 || (!in_flight_.empty() && rng_.Below(3) == 0)) Retire();
      Check();
      if (rng_.Below(40) == 0) cache_->Flush();
    }
    running_.clear();
    while (!in_flight_.empty()) Retire();
    cache_->Flush();
    Check();
    for (int g = 0; g < cache_->num_groups(); ++g) {
      EXPECT_EQ(cache_->counts(g).free, cache_->counts(g).usable) << "group " << g;
    }
  }
  const KvCache& cache() const { return *cache_; }
  bool HasState() const { return IsState(cache_->num_groups() - 1); }
  bool Replays() const { return cache_->layout().replay_tokens > 0; }

 private:
  CacheLayout RandomLayout() {
    CacheLayout layout{.page_tokens = 2 * rng_.Between(1, 3)};
    if (rng_.Below(6) != 0) layout.groups.push_back({.name = "full"});
    if (rng_.Below(3) == 0) {
      layout.groups.push_back({.name = "compressed", .kind = CacheKind::kCompressed, .ratio = 2});
    }
    if (rng_.Below(2) == 0) {
      layout.groups.push_back(
          {.name = "window", .kind = CacheKind::kWindow, .window = rng_.Between(1, 14)});
      if (rng_.Below(3) == 0) {
        layout.groups.back().replayed = true;
        layout.replay_tokens = layout.groups.back().window + rng_.Between(0, 9);
      }
    }
    if (rng_.Below(2) == 0 || layout.groups.empty()) {
      layout.groups.push_back({.name = "state", .kind = CacheKind::kState});
    }
    return layout;
  }

  // Few distinct prompts, so that prefixes meet.
  void Admit(StepPlan& plan) {
    Running next;
    next.name_space = rng_.Below(5) == 0 ? "other" : "";
    const int length = rng_.Between(1, 30);
    for (int i = 0; i < length; ++i) next.tokens.push_back(rng_.Below(12) == 0 ? 1 : 0);
    int32_t slot = 0;
    while (running_.contains(slot)) ++slot;
    PrefixHandle prefix = cache_->Match(next.name_space, next.tokens, length);
    EXPECT_LT(prefix.num_tokens(), length);
    EXPECT_EQ(prefix.num_tokens(), cache_->MatchLength(next.name_space, next.tokens, length));
    const int32_t matched = prefix.num_tokens();
    next.cache = cache_->Begin({slot}, std::move(prefix), length);
    next.num_planned = next.num_computed = next.cache->first_position();
    ExpectReplay(next.num_planned, matched);
    plan.starts.push_back({.slot = {slot}});
    running_.emplace(slot, std::move(next));
  }

  // At least replay_tokens of the prefix, or all of it, and less than a page more.
  void ExpectReplay(int32_t first, int32_t matched) const {
    const CacheLayout& layout = cache_->layout();
    EXPECT_EQ(first % layout.page_tokens, 0);
    EXPECT_LE(first, std::max(0, matched - layout.replay_tokens));
    EXPECT_GT(first + layout.page_tokens, matched - layout.replay_tokens);
  }

  void PlanStep() {
    Submitted step;
    step.plan.step = next_step_++;
    if (running_.size() < 4 && rng_.Below(2) == 0) Admit(step.plan);
    std::set<int32_t> planned;
    for (auto& [slot, sequence] : running_) {
      if (rng_.Below(4) == 0) continue;
      PlanRow(slot, sequence, step, planned);
    }
    // Retraction: of a sequence that is in no row of this plan.
    if (!running_.empty() && rng_.Below(10) == 0) {
      auto victim = running_.begin();
      std::advance(victim, rng_.Below(static_cast<uint32_t>(running_.size())));
      if (!planned.contains(victim->first)) running_.erase(victim);
    }
    cache_->StepSubmitted(step.plan.step);
    for (const int32_t slot : planned) {
      if (rng_.Below(2) == 0) running_.at(slot).Publish(running_.at(slot).num_planned);
    }
    in_flight_.push_back(std::move(step));
  }

  void PlanRow(int32_t slot, Running& sequence, Submitted& step, std::set<int32_t>& planned) {
    const int32_t begin = sequence.num_planned;
    const auto known = static_cast<int32_t>(sequence.tokens.size());
    if (begin == known) return;
    const int32_t end = rng_.Between(begin + 1, std::min(known, begin + 9));
    const int32_t reserved = sequence.cache->num_reserved();
    const int32_t cached = sequence.cache->num_cached_tokens();
    if (!sequence.cache->Reserve(begin, end, step.plan)) return;
    for (int g = 0; g < cache_->num_groups(); ++g) {
      const auto pages = sequence.cache->pages(g);
      const bool is_own = cache_->layout().groups[static_cast<size_t>(g)].replayed;
      const int32_t first_new = is_own ? reserved : std::max(reserved, cached);
      for (size_t i = 0; i < pages.size(); ++i) {
        if (pages[i] == kNoPage) continue;
        const bool is_new =
            !IsState(g) && static_cast<int32_t>(i) * cache_->page_tokens() >= first_new;
        if (is_new) ExpectIdle(g, pages[i]);
        step.touched.insert({g, pages[i].value});
      }
    }
    step.plan.rows.push_back({.slot = {slot}, .begin = begin, .end = end});
    if (begin < cached) {
      step.plan.rows.back().window_begin = sequence.cache->first_position();
      step.plan.rows.back().settled = cached;
    }
    step.texts[slot] = {sequence.name_space, sequence.tokens};
    planned.insert(slot);
    sequence.num_planned = end;
  }

  bool IsState(int group) const {
    return cache_->layout().groups[static_cast<size_t>(group)].kind == CacheKind::kState;
  }
  // A page that is handed out: no step in flight may touch it.
  void ExpectIdle(int group, PageId page) const {
    for (const Submitted& step : in_flight_) {
      EXPECT_FALSE(step.touched.contains({group, page.value}))
          << "page " << page << " of " << group;
    }
  }

  void Retire() {
    const Submitted& step = in_flight_.front();
    device_->Execute(step);
    cache_->StepRetired(step.plan.step);
    for (const StepRow& row : step.plan.rows) {
      const auto found = running_.find(row.slot.value);
      // The slot may be empty or another sequence's by now.
      if (found == running_.end() || row.end > found->second.num_planned ||
          step.texts.at(row.slot.value).second != found->second.tokens) {
        continue;
      }
      Running& sequence = found->second;
      sequence.num_computed = std::max(sequence.num_computed, row.end);
      if (rng_.Below(4) != 0) sequence.Publish(sequence.num_computed);
      // It may end with a later row still in flight.
      if (rng_.Below(12) == 0 ||
          sequence.num_computed == static_cast<int32_t>(sequence.tokens.size())) {
        sequence.Publish(sequence.num_computed);
        running_.erase(found);
      }
    }
    in_flight_.pop_front();
  }

  void Check() {
    const Status status = cache_->CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.message();
    for (int g = 0; g < cache_->num_groups(); ++g) {
      const PageCounts counts = cache_->counts(g);
      ASSERT_GE(counts.sequences, 0);
      ASSERT_EQ(counts.free + counts.evictable, cache_->num_available(g));
    }
  }

  Rng rng_;
  KvCacheOptions options_;
  std::unique_ptr<KvCache> cache_;
  std::optional<SimulatedDevice> device_;
  std::map<int32_t, Running> running_;  // by slot
  std::deque<Submitted> in_flight_;
  uint64_t next_step_ = 0;
};

TEST(KvCache, EveryRowReadsWhatItsOwnTokensComputed) {
  uint64_t hit_tokens = 0;
  uint64_t hit_tokens_with_state = 0;
  uint64_t hit_tokens_with_replay = 0;
  uint64_t evicted_pages = 0;
  for (uint64_t seed = 0; seed < 1000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    CacheTrial trial(seed, PrefixReuse::kOn);
    trial.Run(120);
    hit_tokens += trial.cache().stats().hit_tokens;
    if (trial.HasState()) hit_tokens_with_state += trial.cache().stats().hit_tokens;
    if (trial.Replays()) hit_tokens_with_replay += trial.cache().stats().hit_tokens;
    for (const uint64_t pages : trial.cache().stats().evicted_pages) evicted_pages += pages;
  }
  EXPECT_GT(hit_tokens, 100'000u);
  EXPECT_GT(hit_tokens_with_state, 10'000u);
  EXPECT_GT(hit_tokens_with_replay, 10'000u);
  EXPECT_GT(evicted_pages, 10'000u);
}

TEST(KvCache, WithoutReuseNothingIsFoundAndNothingStays) {
  for (uint64_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    CacheTrial trial(seed, PrefixReuse::kOff);
    trial.Run(100);
    EXPECT_EQ(trial.cache().stats().hit_tokens, 0u);
  }
}

std::unique_ptr<KvCache> FullCache(int32_t num_pages) {
  return KvCache::Create(
             {.layout = {.page_tokens = 4, .groups = {{.name = "kv"}}}, .num_pages = {num_pages}})
      .value();
}

TEST(KvCache, TheLaterOfTwoEqualSequencesSwitchesToTheTreesPages) {
  const auto cache = FullCache(20);
  const Tokens tokens(9, 7);
  StepPlan plan;
  auto first = cache->Begin({0}, cache->Match("", tokens, 9), 9);
  auto second = cache->Begin({1}, cache->Match("", tokens, 9), 9);
  ASSERT_TRUE(first->Reserve(0, 9, plan));
  ASSERT_TRUE(second->Reserve(0, 9, plan));
  EXPECT_EQ(plan.page_updates.size(), 6u);
  cache->StepSubmitted(0);
  first->Publish(tokens, 8);
  second->Publish(tokens, 8);
  EXPECT_EQ(second->pages(0)[1], first->pages(0)[1]);
  EXPECT_NE(second->pages(0)[2], first->pages(0)[2]);
  EXPECT_EQ(cache->counts(0).deferred, 2);
  cache->StepRetired(0);
  EXPECT_EQ(cache->counts(0).deferred, 0);
  plan.Clear();
  ASSERT_TRUE(second->Reserve(9, 10, plan));
  ASSERT_EQ(plan.page_updates.size(), 2u);
  EXPECT_EQ(plan.page_updates[1].page, first->pages(0)[1]);
}

TEST(KvCache, PagesOfAnEndedSequenceWaitForTheStepsInFlight) {
  const auto cache = FullCache(4);
  StepPlan plan;
  auto sequence = cache->Begin({0}, cache->Match("", {}, 0), 12);
  ASSERT_TRUE(sequence->Reserve(0, 12, plan));
  cache->StepSubmitted(4);
  cache->StepSubmitted(5);
  sequence.reset();
  cache->StepRetired(4);
  EXPECT_EQ(cache->counts(0).deferred, 3);
  auto next = cache->Begin({1}, cache->Match("", {}, 0), 1);
  EXPECT_FALSE(next->Reserve(0, 1, plan));
  cache->StepRetired(5);
  EXPECT_TRUE(next->Reserve(0, 1, plan));
}

TEST(KvCache, AFailedReserveChangesNothing) {
  const auto cache = FullCache(4);
  StepPlan plan;
  auto sequence = cache->Begin({0}, cache->Match("", {}, 0), 100);
  EXPECT_FALSE(sequence->Reserve(0, 13, plan));
  EXPECT_TRUE(plan.page_updates.empty());
  EXPECT_EQ(cache->counts(0).free, 3);
  EXPECT_TRUE(sequence->Reserve(0, 12, plan));
  EXPECT_EQ(plan.page_updates.size(), 3u);
}

TEST(KvCache, AtLeastOneTokenIsLeftToCompute) {
  const auto cache = FullCache(20);
  const Tokens tokens(8, 3);
  StepPlan plan;
  auto sequence = cache->Begin({0}, cache->Match("", tokens, 8), 8);
  ASSERT_TRUE(sequence->Reserve(0, 8, plan));
  sequence->Publish(tokens, 8);
  EXPECT_EQ(cache->MatchLength("", tokens, 8), 4);
  EXPECT_EQ(cache->MatchLength("", tokens, 3), 0);
  EXPECT_EQ(cache->MatchLength("", Tokens(9, 3), 9), 8);
  EXPECT_EQ(cache->MatchLength("", Tokens(9, 3), 6), 4);
  EXPECT_EQ(cache->MatchLength("", Tokens(9, 3), -1), 0);
}

TEST(KvCache, AWindowKeepsNoMoreThanItsPeakPages) {
  const auto cache =
      KvCache::Create(
          {.layout = {.page_tokens = 4,
                      .groups = {{.name = "w", .kind = CacheKind::kWindow, .window = 10}}},
           .num_pages = {50}})
          .value();
  for (int32_t row = 1; row <= 9; ++row) {
    auto sequence = cache->Begin({0}, cache->Match("", {}, 0), 1);
    int32_t peak = 0;
    for (int32_t begin = 0; begin + row <= 200; begin += row) {
      StepPlan plan;
      ASSERT_TRUE(sequence->Reserve(begin, begin + row, plan));
      peak = std::max(peak, cache->counts(0).sequences);
    }
    EXPECT_LE(peak, cache->PeakPages(0, 200, row));
    EXPECT_GE(peak + 1, cache->PeakPages(0, 200, row));
  }
  EXPECT_EQ(cache->PeakPages(0, 3, 3), 1);
}

TEST(KvCache, RefusesLayoutsThatCannotWork) {
  const auto error = [](CacheLayout layout, std::vector<int32_t> num_pages) {
    return KvCache::Create({.layout = std::move(layout), .num_pages = std::move(num_pages)})
        .status()
        .param();
  };
  EXPECT_EQ(error({.page_tokens = 0, .groups = {{}}}, {9}), "page_tokens");
  EXPECT_EQ(error({.page_tokens = 4}, {}), "groups");
  EXPECT_EQ(error({.page_tokens = 4, .groups = std::vector<CacheGroup>(kMaxGroups + 1)}, {}),
            "groups");
  EXPECT_EQ(error({.page_tokens = 4, .groups = {{}}}, {1}), "num_pages");
  EXPECT_EQ(error({.page_tokens = 4, .groups = {{}}}, {9, 9}), "num_pages");
  EXPECT_EQ(error({.page_tokens = 4, .groups = {{.kind = CacheKind::kWindow}}}, {9}), "window");
  EXPECT_EQ(
      error({.page_tokens = 4, .groups = {{.kind = CacheKind::kCompressed, .ratio = 3}}}, {9}),
      "ratio");
  const CacheGroup replayed = {.kind = CacheKind::kWindow, .window = 5, .replayed = true};
  EXPECT_EQ(error({.page_tokens = 4, .groups = {replayed}, .replay_tokens = 4}, {9}),
            "replay_tokens");
  const CacheGroup kept = {.kind = CacheKind::kWindow, .window = 5};
  EXPECT_EQ(error({.page_tokens = 4, .groups = {replayed, kept}, .replay_tokens = 5}, {9, 9}),
            "replay_tokens");
}

}  // namespace
}  // namespace hayate::kv
