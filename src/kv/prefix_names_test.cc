// Names of prefixes, alone and in a cache under pressure.

#include "kv/prefix_names.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "core/step_plan.h"
#include "kv/kv_cache.h"

namespace hayate::kv {
namespace {

// How many nodes carry each name, from the changes alone.
class Reader {
 public:
  void Take(std::vector<PrefixKeyChange>& changes) {
    for (const PrefixKeyChange& change : changes) {
      if (change.held) {
        ++count_[change.hash];
      } else {
        ASSERT_GT(count_[change.hash], 0);
        if (--count_[change.hash] == 0) count_.erase(change.hash);
      }
    }
    changes.clear();
  }
  const std::map<uint64_t, int>& count() const { return count_; }

 private:
  std::map<uint64_t, int> count_;
};

TEST(PrefixNames, ChangesAddUpToWhatTheNodesCarry) {
  Rng rng(1);
  PrefixNames names;
  Reader reader;
  std::map<int32_t, std::set<uint64_t>> nodes;
  std::vector<PrefixKeyChange> changes;
  for (int step = 0; step < 20'000; ++step) {
    const auto node = static_cast<int32_t>(rng.Below(20));
    if (rng.Below(60) == 0) {
      names.Remove(node);
      nodes.erase(node);
    } else {
      const uint64_t hash = rng.Below(200);
      names.Add(node, hash);
      if (nodes[node].size() < size_t{PrefixNames::kMaxKeysPerNode}) nodes[node].insert(hash);
    }
    if (rng.Below(10) != 0) continue;
    names.TakeChanges(changes);
    reader.Take(changes);
    std::map<uint64_t, int> expected;
    for (const auto& [id, hashes] : nodes) {
      for (const uint64_t hash : hashes) ++expected[hash];
    }
    ASSERT_EQ(reader.count(), expected);
  }
}

// Prompts from one alphabet of pages; the name of a prefix is a hash of its tokens.
class NamedCache : public ::testing::Test {
 protected:
  static constexpr int32_t kPage = 4;

  NamedCache() {
    KvCacheOptions options{.num_pages = {20}, .keeps_names = true};
    options.layout = {.page_tokens = kPage, .groups = {{.name = "full"}}};
    cache_ = KvCache::Create(std::move(options)).value();
  }

  static std::vector<PrefixKey> KeysOf(const std::vector<TokenId>& tokens) {
    std::vector<PrefixKey> keys;
    uint64_t hash = 1;
    for (size_t i = 0; i < tokens.size(); ++i) {
      hash = hash * 1'000'003 + static_cast<uint64_t>(tokens[i]) + 1;
      if (i % 3 == 2) keys.push_back({hash, static_cast<int32_t>(i + 1)});
    }
    return keys;
  }

  void Run(const std::vector<TokenId>& tokens) {
    const std::vector<PrefixKey> keys = KeysOf(tokens);
    const auto length = static_cast<int32_t>(tokens.size());
    auto sequence = cache_->Begin({0}, cache_->Match("", tokens, length), length);
    sequence->NameBy(keys);
    StepPlan plan;
    ASSERT_TRUE(sequence->Reserve(sequence->first_position(), length, plan));
    sequence->Publish(tokens, length / 2);
    sequence->Publish(tokens, length);
  }

  void Read() {
    cache_->TakeNameChanges(changes_);
    reader_.Take(changes_);
  }

  std::unique_ptr<KvCache> cache_;
  Reader reader_;
  std::vector<PrefixKeyChange> changes_;
};

TEST_F(NamedCache, ANameIsHeldExactlyWhileThePagesOfItsPrefixAre) {
  Rng rng(3);
  std::map<uint64_t, std::vector<TokenId>> prefix_of;
  for (int round = 0; round < 2'000; ++round) {
    std::vector<TokenId> tokens;
    const uint32_t length = 2 + rng.Below(36);
    for (uint32_t i = 0; i < length; ++i) {
      tokens.push_back(rng.Below(10) == 0 ? static_cast<TokenId>(rng.Below(3)) : 0);
    }
    for (const PrefixKey& key : KeysOf(tokens)) {
      // One token more than its whole pages: Match leaves the last one to be computed.
      std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + key.num_tokens);
      prefix_of.emplace(key.hash, std::move(prefix));
    }
    Run(tokens);
    if (HasFatalFailure()) return;
    if (rng.Below(100) == 0) cache_->Flush();
    Read();
    for (const auto& [hash, prefix] : prefix_of) {
      // The pages that end before the prefix does say whether it can be there at all.
      std::vector<TokenId> probe(prefix.begin(), prefix.end());
      const int32_t whole = static_cast<int32_t>(prefix.size()) / kPage * kPage;
      probe.push_back(99);
      const int32_t found = cache_->MatchLength("", probe, 1 << 20);
      if (reader_.count().contains(hash)) {
        ASSERT_EQ(found, whole) << "held, and its pages are gone";
      } else if (static_cast<int32_t>(prefix.size()) == whole) {
        ASSERT_LT(found, whole) << "not held, and its pages are there";
      }
    }
  }
  cache_->Flush();
  Read();
  EXPECT_TRUE(reader_.count().empty());
}

TEST(KvCache, WithoutNamesTellsNothing) {
  KvCacheOptions options{.num_pages = {20}};
  options.layout = {.page_tokens = 4, .groups = {{.name = "full"}}};
  auto cache = KvCache::Create(std::move(options)).value();
  const std::vector<TokenId> tokens(8, 1);
  const std::vector<PrefixKey> keys = {{5, 4}};
  auto sequence = cache->Begin({0}, cache->Match("", tokens, 8), 8);
  sequence->NameBy(keys);
  StepPlan plan;
  ASSERT_TRUE(sequence->Reserve(0, 8, plan));
  sequence->Publish(tokens, 8);
  sequence.reset();
  cache->Flush();
  std::vector<PrefixKeyChange> changes;
  cache->TakeNameChanges(changes);
  EXPECT_TRUE(changes.empty());
}

}  // namespace
}  // namespace hayate::kv
