// The tree against a naive model, compared after every operation.

#include "kv/radix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kv/testing/naive_tree.h"

namespace hayate::kv {
namespace {

CacheGroup Full() { return {.name = "full", .kind = CacheKind::kFull}; }
CacheGroup Window(int32_t window) {
  return {.name = "window", .kind = CacheKind::kWindow, .window = window};
}
CacheGroup State() { return {.name = "state", .kind = CacheKind::kState}; }

// Random operations on tree and model; every difference is a failure.
class TreeTrial {
 public:
  explicit TreeTrial(uint64_t seed) : rng_(seed), layout_(RandomLayout()), model_(layout_) {
    for (size_t g = 0; g < layout_.groups.size(); ++g) pools_.emplace_back(rng_.Between(4, 30));
    tree_.emplace(layout_, pools_);
  }
  ~TreeTrial() { handles_.clear(); }

  void Run(int num_operations) {
    for (int i = 0; i < num_operations && !::testing::Test::HasFailure(); ++i) {
      Operate();
      Compare();
    }
  }

 private:
  CacheLayout RandomLayout() {
    CacheLayout layout{.page_tokens = rng_.Between(1, 3)};
    if (rng_.Below(8) != 0) layout.groups.push_back(Full());
    if (rng_.Below(3) == 0) layout.groups.push_back({.name = "c", .kind = CacheKind::kCompressed});
    if (rng_.Below(2) == 0) layout.groups.push_back(Window(rng_.Between(1, 8)));
    if (rng_.Below(4) == 0) layout.groups.push_back(Window(rng_.Between(1, 3)));
    if (rng_.Below(2) == 0 || layout.groups.empty()) layout.groups.push_back(State());
    return layout;
  }
  std::string RandomNamespace() { return rng_.Below(4) == 0 ? "b" : "a"; }
  Tokens RandomTokens(int count) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng_.Below(2)));
    return tokens;
  }

  void Operate() {
    switch (rng_.Below(9)) {
      case 0:
      case 1:
        return Match();
      case 2:
        return Release();
      case 3:
        return Trim();
      case 4:
        return Evict();
      case 5:
        if (rng_.Below(10) != 0) return;
        tree_->EvictAll();
        return model_.EvictAll();
      default:
        return Append();
    }
  }

  void Match() {
    if (handles_.size() >= 5) return;
    const std::string name_space = RandomNamespace();
    const Tokens tokens = RandomTokens(rng_.Between(0, 12));
    const int32_t expected = model_.MatchLength(name_space, tokens);
    EXPECT_EQ(tree_->MatchLength(name_space, tokens), expected);
    PrefixHandle handle = tree_->Match(name_space, tokens);
    ASSERT_EQ(handle.num_tokens(), expected);
    NaiveTree::Handle twin{name_space, Tokens(tokens.begin(), tokens.begin() + expected), {}};
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      const CacheGroup& group = layout_.groups[g];
      int32_t begin = 0;
      if (group.kind == CacheKind::kState) begin = handle.num_pages();
      if (group.kind == CacheKind::kWindow) {
        begin = std::max(0, expected - group.window + 1) / layout_.page_tokens;
      }
      twin.pinned_begin.push_back(begin);
    }
    handles_.push_back(std::move(handle));
    model_.handles.push_back(std::move(twin));
    model_.Settle();
  }

  void Release() {
    if (handles_.empty()) return;
    const auto i = rng_.Below(static_cast<uint32_t>(handles_.size()));
    handles_.erase(handles_.begin() + i);
    model_.handles.erase(model_.handles.begin() + i);
    model_.Settle();
  }

  void Trim() {
    if (handles_.empty()) return;
    const auto i = rng_.Below(static_cast<uint32_t>(handles_.size()));
    const auto g = rng_.Below(static_cast<uint32_t>(layout_.groups.size()));
    if (IsBase(layout_.groups[g])) return;
    int32_t& begin = model_.handles[i].pinned_begin[g];
    begin = rng_.Between(begin, handles_[i].num_pages());
    std::vector<Pin> pins;
    tree_->TakePins(handles_[i], static_cast<int>(g), begin, pins);
    for (const Pin& pin : pins) tree_->Unpin(pin);
    model_.Settle();
  }

  void Evict() {
    const auto g = rng_.Below(static_cast<uint32_t>(layout_.groups.size()));
    const int32_t count = rng_.Between(1, 4);
    int32_t expected = 0;
    while (expected < count && model_.EvictOne(g)) ++expected;
    EXPECT_EQ(tree_->Evict(static_cast<int>(g), count), expected);
  }

  void Append() {
    if (handles_.empty()) return;
    const auto i = rng_.Below(static_cast<uint32_t>(handles_.size()));
    NaiveTree::Handle& twin = model_.handles[i];
    const int32_t depth = handles_[i].num_pages();
    std::vector<PageId> own;
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      const bool may_lack = !IsBase(layout_.groups[g]) && twin.pinned_begin[g] == depth;
      const bool is_state = layout_.groups[g].kind == CacheKind::kState;
      const bool lacks = is_state || (may_lack && rng_.Below(2) == 0);
      own.push_back(lacks ? kNoPage : pools_[g].Allocate().value_or(kNoPage));
      if (own.back() == kNoPage && !may_lack) return GiveBack(own);
    }
    const Tokens page = RandomTokens(layout_.page_tokens);
    std::vector<PageId> held = own;
    ASSERT_TRUE(tree_->Append(handles_[i], page, held));

    twin.tokens.insert(twin.tokens.end(), page.begin(), page.end());
    NaiveTree::Prefix& prefix = model_.prefixes[{twin.name_space, twin.tokens}];
    prefix.held.resize(own.size());
    for (size_t g = 0; g < own.size(); ++g) {
      if (own[g] == kNoPage) twin.pinned_begin[g] = depth + 1;
      if (own[g] == kNoPage) continue;
      if (prefix.held[g].page == kNoPage) prefix.held[g].page = std::exchange(own[g], kNoPage);
      EXPECT_EQ(held[g], prefix.held[g].page);
    }
    GiveBack(own);
    model_.Settle();
  }

  void GiveBack(const std::vector<PageId>& pages) {
    for (size_t g = 0; g < pages.size(); ++g) {
      if (pages[g] != kNoPage) pools_[g].Free(pages[g]);
    }
  }

  void Compare() {
    std::vector<Pin> pins;
    for (const PrefixHandle& handle : handles_) tree_->CollectPins(handle, pins);
    std::vector<std::vector<int32_t>> seen;
    for (const PagePool& pool : pools_) seen.emplace_back(pool.num_usable() + 1, 0);
    const Status status = tree_->CheckIntegrity(pins, seen);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(tree_->num_nodes(), static_cast<int32_t>(model_.prefixes.size()));
    for (size_t g = 0; g < pools_.size(); ++g) {
      ASSERT_EQ(tree_->num_evictable(static_cast<int>(g)), model_.NumEvictable(g));
      std::vector<int32_t> expected(seen[g].size(), 0);
      for (const auto& [key, prefix] : model_.prefixes) {
        if (prefix.held[g].page != kNoPage) ++expected[prefix.held[g].page.value];
      }
      ASSERT_EQ(seen[g], expected) << "group " << g;
      for (int32_t page = 1; page <= pools_[g].num_usable(); ++page) {
        ASSERT_EQ(pools_[g].IsFree({page}), expected[page] == 0) << "group " << g;
      }
    }
    for (size_t i = 0; i < handles_.size(); ++i) {
      const NaiveTree::Handle& twin = model_.handles[i];
      for (int32_t end = 1; end <= handles_[i].num_pages(); ++end) {
        const Tokens key(twin.tokens.begin(), twin.tokens.begin() + end * layout_.page_tokens);
        const NaiveTree::Prefix& prefix = model_.prefixes.at({twin.name_space, key});
        for (size_t g = 0; g < pools_.size(); ++g) {
          const bool is_pinned = IsBase(layout_.groups[g]) || end - 1 >= twin.pinned_begin[g];
          ASSERT_EQ(handles_[i].page(static_cast<int>(g), end - 1),
                    is_pinned ? prefix.held[g].page : kNoPage);
        }
      }
    }
  }

  Rng rng_;
  const CacheLayout layout_;
  std::vector<PagePool> pools_;
  std::optional<RadixTree> tree_;
  NaiveTree model_;
  std::vector<PrefixHandle> handles_;
};

TEST(RadixTree, AgreesWithANaiveModelOnRandomOperations) {
  for (uint64_t seed = 0; seed < 1500 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    TreeTrial(seed).Run(150);
  }
}

// One group, one token a page: token i of a sequence is on the page it was given.
struct SmallTree {
  explicit SmallTree(CacheGroup group, int32_t num_pages = 100)
      : layout{.page_tokens = 1, .groups = {std::move(group)}}, pools(1, PagePool(num_pages)) {}
  PrefixHandle Insert(const std::string& name_space, const Tokens& tokens) {
    PrefixHandle handle = tree.Match(name_space, tokens);
    for (size_t i = static_cast<size_t>(handle.num_tokens()); i < tokens.size(); ++i) {
      PageId page = *pools[0].Allocate();
      EXPECT_TRUE(tree.Append(handle, {&tokens[i], 1}, {&page, 1}));
    }
    return handle;
  }
  CacheLayout layout;
  std::vector<PagePool> pools;
  RadixTree tree{layout, pools};
};

TEST(RadixTree, EvictionSkipsPinnedPrefixesAndStartsAtTheLeaves) {
  SmallTree small(Full());
  small.Insert("", {1, 2, 3, 4, 5}).Reset();
  small.Insert("", {1, 2, 9}).Reset();
  const PrefixHandle pinned = small.tree.Match("", Tokens{1, 2, 3});
  EXPECT_EQ(small.tree.num_evictable(0), 3);
  EXPECT_EQ(small.tree.Evict(0, 1), 1);  // 5: older than 9
  EXPECT_EQ(small.tree.MatchLength("", Tokens{1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(small.tree.MatchLength("", Tokens{1, 2, 9}), 3);
  EXPECT_EQ(small.tree.Evict(0, 100), 2);
  EXPECT_EQ(small.tree.MatchLength("", Tokens{1, 2, 3, 4}), 3);
}

TEST(RadixTree, NamespacesShareNothingAndVanishWithTheirLastPage) {
  SmallTree small(Full());
  small.Insert("tenant a", {1, 2, 3}).Reset();
  EXPECT_EQ(small.tree.MatchLength("tenant b", Tokens{1, 2, 3}), 0);
  small.Insert("tenant b", {1, 2}).Reset();
  EXPECT_EQ(small.tree.num_nodes(), 5);
  EXPECT_EQ(small.tree.num_namespaces(), 2);
  small.tree.EvictAll();
  EXPECT_EQ(small.tree.num_namespaces(), 0);
  EXPECT_EQ(small.pools[0].num_free(), small.pools[0].num_usable());
}

TEST(RadixTree, KeepsSiblingsApartWhenOneIsEvicted) {
  SmallTree small(Full());
  for (TokenId token = 0; token < 50; ++token) small.Insert("", {7, token}).Reset();
  EXPECT_EQ(small.tree.Evict(0, 20), 20);
  for (TokenId token = 0; token < 50; ++token) {
    EXPECT_EQ(small.tree.MatchLength("", Tokens{7, token}), token < 20 ? 1 : 2);
  }
}

TEST(RadixTree, WithoutBaseGroupsTheOldestNodesMakeRoom) {
  SmallTree small(State(), 5);
  PrefixHandle handle = small.tree.Match("", {});
  for (TokenId token = 0; token < 200'000; ++token) {
    if (token % 10'000 == 0) handle = small.tree.Match("", {});
    PageId none = kNoPage;
    ASSERT_TRUE(small.tree.Append(handle, {&token, 1}, {&none, 1}));
  }
  EXPECT_LE(small.tree.num_nodes(), 1 << 16);
}

}  // namespace
}  // namespace hayate::kv
