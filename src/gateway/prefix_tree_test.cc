#include "gateway/prefix_tree.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace hayate::gateway {
namespace {

std::string Text(uint64_t seed, size_t size) {
  Rng rng(seed);
  std::string text(size, ' ');
  for (char& c : text) c = static_cast<char>('a' + rng.Below(26));
  return text;
}

PrefixTree::Path PathOf(const PrefixTree& tree, std::string_view text, uint64_t seed = 0) {
  PrefixTree::Path path;
  tree.MakePath(text, seed, path);
  return path;
}

uint32_t MatchedBy(const PrefixTree& tree, std::string_view text, PrefixTree::Slot slot,
                   uint64_t seed = 0, int64_t now_ns = 0) {
  std::vector<uint32_t> matched;
  tree.Match(PathOf(tree, text, seed), now_ns, matched);
  return slot < matched.size() ? matched[slot] : 0;
}

TEST(PrefixTree, FindsTheLongestPrefixOfEachWorkerInWholeBlocks) {
  PrefixTree tree({});
  const std::string text = Text(1, 1000);
  tree.Insert(PathOf(tree, text), 0, 1);
  tree.Insert(PathOf(tree, std::string_view(text).substr(0, 300)), 1, 2);
  EXPECT_EQ(MatchedBy(tree, text, 0), 960u);
  EXPECT_EQ(MatchedBy(tree, text, 1), 256u);
  EXPECT_EQ(MatchedBy(tree, text + "more", 0), 960u);
  EXPECT_EQ(MatchedBy(tree, Text(2, 1000), 0), 0u);
  std::string diverging = text;
  diverging[500] = '!';
  EXPECT_EQ(MatchedBy(tree, diverging, 0), 448u);
  tree.CheckIntegrity();
}

TEST(PrefixTree, KeepsNamespacesApart) {
  PrefixTree tree({});
  const std::string text = Text(1, 1000);
  tree.Insert(PathOf(tree, text, 7), 0, 1);
  EXPECT_EQ(MatchedBy(tree, text, 0, 7), 960u);
  EXPECT_EQ(MatchedBy(tree, text, 0, 8), 0u);
}

TEST(PrefixTree, LongTextsHaveFewBlocksAndKeepThePrefixRule) {
  PrefixTree tree({});
  const std::string text = Text(3, 1 << 20);
  const PrefixTree::Path whole = PathOf(tree, text);
  EXPECT_LT(whole.hashes.size(), 400u);
  const PrefixTree::Path half = PathOf(tree, std::string_view(text).substr(0, 1 << 19));
  for (size_t i = 0; i < half.hashes.size(); ++i) EXPECT_EQ(half.hashes[i], whole.hashes[i]);
}

TEST(PrefixTree, StaysUnderItsBytesAndDropsTheOldestFirst) {
  PrefixTree tree({.max_bytes = 100'000});
  for (uint64_t i = 0; i < 2000; ++i) {
    tree.Insert(PathOf(tree, Text(i, 1024)), static_cast<PrefixTree::Slot>(i % 3),
                static_cast<int64_t>(i) * 1'000'000'000);
    EXPECT_LE(tree.bytes(), 100'000u);
  }
  tree.CheckIntegrity();
  EXPECT_EQ(MatchedBy(tree, Text(0, 1024), 0), 0u);
  EXPECT_EQ(MatchedBy(tree, Text(1999, 1024), 1999 % 3), 1024u);
}

TEST(PrefixTree, AWorkersShareIsBoundedByItsCapacityLeavesFirst) {
  PrefixTree tree({});
  tree.SetCapacity(0, 2048);
  const std::string text = Text(1, 1024);
  tree.Insert(PathOf(tree, text), 0, 1);
  tree.Insert(PathOf(tree, Text(2, 1536)), 0, 2);
  EXPECT_LE(tree.held_bytes(0), 2048u);
  const uint32_t left = MatchedBy(tree, text, 0);
  EXPECT_GT(left, 0u);  // its beginning is still there
  EXPECT_LT(left, 1024u);
  EXPECT_EQ(MatchedBy(tree, Text(2, 1536), 0), 1536u);
  tree.CheckIntegrity();
}

TEST(PrefixTree, ForgetsWhatIsTooOld) {
  PrefixTree tree({.max_age_ns = 10'000'000'000});
  tree.Insert(PathOf(tree, Text(1, 1024)), 0, 0);
  tree.Insert(PathOf(tree, Text(2, 1024)), 0, 20'000'000'000);
  EXPECT_EQ(MatchedBy(tree, Text(1, 1024), 0), 0u);
  tree.CheckIntegrity();
}

TEST(PrefixTree, RandomOperationsKeepTheBooksInOrder) {
  PrefixTree tree({.max_bytes = 60'000, .max_age_ns = 50'000'000'000});
  Rng rng(11);
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 40; ++i) {
    std::string text = Text(i % 5, 64 * (1 + rng.Below(20)));
    texts.push_back(text + Text(i, 64 * rng.Below(10)));
  }
  for (int step = 0; step < 5000; ++step) {
    const auto slot = static_cast<PrefixTree::Slot>(rng.Below(6));
    const std::string& text = texts[rng.Below(40)];
    const int64_t now_ns = int64_t{step} * 100'000'000;
    switch (rng.Below(20)) {
      case 0:
        tree.Forget(slot);
        EXPECT_EQ(tree.held_bytes(slot), 0u);
        break;
      case 1:
        tree.SetCapacity(slot, 1000 + rng.Below(20'000));
        break;
      case 2:
        if (slot % 2 == 0) tree.Tells(slot);
        break;
      case 3:
      case 4:
      case 5:
        if (!tree.tells(slot)) break;
        for (const uint64_t hash : PathOf(tree, text).hashes) {
          rng.Below(3) != 0 ? tree.Hold(hash, slot, now_ns) : tree.Drop(hash, slot);
        }
        break;
      default:
        tree.Insert(PathOf(tree, text), slot, now_ns);
        if (tree.held_bytes(slot) >= text.size()) {
          EXPECT_EQ(MatchedBy(tree, text, slot, 0, now_ns), text.size() / 64 * 64);
        }
    }
    if (step % 50 == 0) tree.CheckIntegrity();
  }
}

constexpr int64_t kSecond = 1'000'000'000;

void HoldAll(PrefixTree& tree, const PrefixTree::Path& path, PrefixTree::Slot slot) {
  for (const uint64_t hash : path.hashes) tree.Hold(hash, slot, 0);
}

TEST(PrefixTree, BelievesAWorkerThatTells) {
  PrefixTree tree({});
  const std::string text = Text(1, 1000);
  const PrefixTree::Path path = PathOf(tree, text);
  tree.Insert(path, 1, 0);
  tree.Tells(0);
  EXPECT_EQ(MatchedBy(tree, text, 0), 0u);
  HoldAll(tree, path, 0);
  EXPECT_EQ(MatchedBy(tree, text, 0, 0, 1000 * kSecond), 960u);
  // It evicts leaves first; what it dropped is not there, whatever was sent to it.
  tree.Drop(path.hashes.back(), 0);
  tree.Drop(path.hashes[path.hashes.size() - 2], 0);
  EXPECT_EQ(MatchedBy(tree, text, 0), 832u);
  // Others are not concerned.
  EXPECT_EQ(MatchedBy(tree, text, 1, 0, 1000 * kSecond), 960u);
  tree.CheckIntegrity();
  // It tells anew: what it held before is gone.
  tree.Tells(0);
  EXPECT_EQ(MatchedBy(tree, text, 0), 0u);
  tree.Drop(12345, 0);
  tree.CheckIntegrity();
}

TEST(PrefixTree, AGuessAboutAWorkerThatTellsCountsForAWhile) {
  PrefixTree tree({});
  const std::string text = Text(1, 1000);
  const PrefixTree::Path path = PathOf(tree, text);
  tree.Tells(0);
  tree.Insert(path, 0, 100 * kSecond);
  EXPECT_EQ(MatchedBy(tree, text, 0, 0, 130 * kSecond), 960u);
  EXPECT_EQ(MatchedBy(tree, text, 0, 0, 131 * kSecond), 0u);
  // Told in time it stays, and the rest of the guess is cleared away by the next insertion.
  tree.Hold(path.hashes[0], 0, 110 * kSecond);
  tree.Hold(path.hashes[1], 0, 110 * kSecond);
  EXPECT_EQ(MatchedBy(tree, text, 0, 0, 131 * kSecond), 128u);
  const size_t before = tree.num_entries();
  tree.Insert(PathOf(tree, Text(2, 64)), 0, 200 * kSecond);
  EXPECT_EQ(tree.num_entries(), before - 13 + 1);
  tree.CheckIntegrity();
}

TEST(PrefixTree, WhatWorkersTellIsBoundedByBytesToo) {
  PrefixTree tree({.max_bytes = 100'000});
  tree.Tells(0);
  tree.SetCapacity(0, 1);  // of guesses alone
  for (uint64_t hash = 1; hash <= 10'000; ++hash) {
    tree.Hold(hash * 0x9E3779B97F4A7C15u, 0, static_cast<int64_t>(hash));
  }
  EXPECT_LE(tree.bytes(), 100'000u);
  EXPECT_GT(tree.bytes(), 90'000u);
  tree.CheckIntegrity();
  tree.Forget(0);
  EXPECT_EQ(tree.num_entries(), 0u);
  EXPECT_FALSE(tree.tells(0));
}

}  // namespace
}  // namespace hayate::gateway
