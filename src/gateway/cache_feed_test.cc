// Workers' own word on their caches, from its JSON through the router to the choice of a worker.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway/router.h"
#include "gateway/worker_facts.h"
#include "text/prompt_blocks.h"

namespace hayate::gateway {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kPatience = 1000 * kMs;

TEST(CacheChanges, AreReadStrictly) {
  const std::string good =
      R"({"epoch":"ff00000000000001","next":18446744073709551615,"whole":true,"more":false,)"
      R"("block_bytes":64,"held":["0","ffffffffffffffff"],"dropped":["a"]})";
  const auto changes = ReadCacheChanges(good);
  ASSERT_TRUE(changes.has_value());
  EXPECT_EQ(changes->cursor, (CacheCursor{0xff00000000000001, UINT64_MAX}));
  EXPECT_TRUE(changes->whole);
  EXPECT_FALSE(changes->more);
  EXPECT_EQ(changes->held, (std::vector<uint64_t>{0, UINT64_MAX}));
  EXPECT_EQ(changes->dropped, (std::vector<uint64_t>{10}));
  const auto with = [&good](std::string_view old, std::string_view other) {
    std::string text = good;
    text.replace(text.find(old), old.size(), other);
    return text;
  };
  for (const std::string& bad :
       {std::string("[]"), std::string(), with("64", "128"), with("\"0\"", "0"),
        with("\"a\"", "\"-a\""), with("\"a\"", "\"\""), with("\"a\"", "\"10000000000000000\""),
        with("\"held\"", "\"hold\""), with("true", "1"), with("ff00", "gg00"),
        with("18446744073709551615", "-1")}) {
    EXPECT_FALSE(ReadCacheChanges(bad).has_value()) << bad;
  }
}

class CacheFeed : public ::testing::Test {
 protected:
  CacheFeed() : router_({}) {
    for (const char* url : {"http://a:1", "http://b:1"}) {
      const WorkerId id = *router_.Add({.url = url});
      Up(id, 0);
      ids_.push_back(id);
    }
  }

  void Up(WorkerId id, int64_t now_ns) {
    router_.OnFacts(id, {.models = {"M"}, .max_total_tokens = 1 << 20, .tells_cache = true});
    router_.OnProbe(id, true, now_ns);
  }

  // The worker that the prompt goes to; its request is over at once.
  WorkerId Send(const std::string& prompt, int64_t now_ns) {
    auto picked = router_.Pick({.model = "M", .key = {.prompt = prompt}}, now_ns);
    EXPECT_TRUE(picked.lease.has_value());
    (void)router_.Finish(*picked.lease, AttemptEnd::kOk, now_ns);
    return picked.lease->worker;
  }

  std::vector<uint64_t> Hashes(const std::string& prompt) {
    text::PromptBlocks blocks;
    text::HashPrompt(prompt, 0, text::kPromptBlockBytes, blocks);
    return blocks.hashes;
  }

  Router::CacheRead ReadOf(WorkerId id, int64_t now_ns) {
    for (const auto& read : router_.DueCacheReads(now_ns, kPatience)) {
      if (read.id == id) return read;
    }
    ADD_FAILURE() << "no read is due";
    return {.id = id, .spec = nullptr, .cursor = {}};
  }

  Router router_;
  std::vector<WorkerId> ids_;
};

TEST_F(CacheFeed, APromptGoesWhereItIsToldToBe) {
  const std::string prompt(4000, 'p');
  int64_t now_ns = 0;
  Send(std::string(100, 'x'), now_ns);  // makes the policy
  for (const WorkerId teller : {ids_[0], ids_[1], ids_[0]}) {
    now_ns += 600'000 * kMs;  // what was guessed or given lately counts no more
    const auto reads = router_.DueCacheReads(now_ns, kPatience);
    ASSERT_EQ(reads.size(), 2u);
    for (const auto& read : reads) {
      // It tells all of its cache anew each time, as another process would.
      CacheChanges changes{.cursor = {static_cast<uint64_t>(now_ns), 1}, .whole = true};
      if (read.id == teller) changes.held = Hashes(prompt);
      router_.OnCacheRead(read, changes, now_ns);
    }
    // Not sent there before, or long ago: only the workers' word can say.
    for (int i = 0; i < 4; ++i) EXPECT_EQ(Send(prompt, now_ns), teller);
  }
}

TEST_F(CacheFeed, WhatWasEvictedDrawsNoMoreRequests) {
  const std::string prompt(8000, 'p');
  const WorkerId first = Send(prompt, 0);
  const WorkerId other = first == ids_[0] ? ids_[1] : ids_[0];
  EXPECT_EQ(Send(prompt, 1), first);
  const Router::CacheRead read = ReadOf(first, 1);
  router_.OnCacheRead(read, CacheChanges{.cursor = {7, 3}, .whole = true, .held = Hashes(prompt)},
                      2);
  EXPECT_EQ(Send(prompt, 3), first);
  // Time passes, so that lately given work is forgotten; the prompt is evicted there.
  const int64_t later = 600'000 * kMs;
  const Router::CacheRead next = ReadOf(first, later);
  EXPECT_EQ(next.cursor, (CacheCursor{7, 3}));
  router_.OnCacheRead(next, CacheChanges{.cursor = {7, 4}, .dropped = Hashes(prompt)}, later);
  int at_first = 0;
  for (int i = 0; i < 10; ++i) {
    // Each a different one behind the shared part, which nobody is known to hold.
    at_first +=
        Send(prompt.substr(0, 60) + std::to_string(i) + std::string(8000, 'q'), later) == first;
  }
  EXPECT_LT(at_first, 8);
  EXPECT_TRUE(router_.Find(other).has_value());
}

TEST_F(CacheFeed, AReadThatWasOvertakenCountsForNothing) {
  Send(std::string(100, 'x'), 0);
  const Router::CacheRead read = ReadOf(ids_[0], 0);
  EXPECT_TRUE(router_.DueCacheReads(kPatience - 1, kPatience).empty());  // under way
  const CacheChanges changes{.cursor = {5, 9}, .whole = true};
  router_.OnCacheRead(read, changes, 1);
  const Router::CacheRead second = ReadOf(ids_[0], 300 * kMs);
  EXPECT_EQ(second.cursor, (CacheCursor{5, 9}));
  // The process is gone meanwhile, and its cache.
  auto picked = router_.Pick({.model = "M"}, 300 * kMs);
  while (picked.lease->worker != ids_[0]) picked = router_.Pick({.model = "M"}, 300 * kMs);
  (void)router_.Finish(*picked.lease, AttemptEnd::kNoConnection, 300 * kMs);
  (void)router_.DueProbes(300 * kMs, kPatience);
  Up(ids_[0], 301 * kMs);
  Up(ids_[0], 302 * kMs);
  ASSERT_EQ(router_.Find(ids_[0])->state, WorkerState::kReady);
  router_.OnCacheRead(second, CacheChanges{.cursor = {5, 12}}, 303 * kMs);
  EXPECT_EQ(ReadOf(ids_[0], 2000 * kMs).cursor, CacheCursor{});
  // No answer: it is asked again, from where it was.
  router_.OnCacheRead({ids_[0], nullptr, {}}, std::nullopt, 2000 * kMs);
  EXPECT_EQ(ReadOf(ids_[0], 2300 * kMs).cursor, CacheCursor{});
}

TEST_F(CacheFeed, OthersAreNotAsked) {
  const WorkerId silent = *router_.Add({.url = "http://c:1"});
  router_.OnFacts(silent, {.models = {"M"}});
  router_.OnProbe(silent, true, 0);
  EXPECT_EQ(router_.DueCacheReads(0, kPatience).size(), 2u);
  Router never({.cache_read_ns = 0});
  const WorkerId id = *never.Add({.url = "http://a:1"});
  never.OnFacts(id, {.tells_cache = true});
  never.OnProbe(id, true, 0);
  EXPECT_TRUE(never.DueCacheReads(0, kPatience).empty());
}

}  // namespace
}  // namespace hayate::gateway
