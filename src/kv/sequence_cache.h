#pragma once
// The page tables of one sequence, in every group, and its share in the radix tree.
//
//   positions   0 ············ num_published ············ num_reserved
//   pages           the tree's, pinned      our own
//
// Made by KvCache::Begin; destroying it gives everything back, once no step in flight can touch it.
// Publish a finished sequence first, but not a retracted or failed one. Between a Reserve and the
// submission of its plan, the sequence must be neither published nor destroyed.
// Owner: engine thread.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/ids.h"
#include "core/prefix_key.h"
#include "core/step_plan.h"
#include "kv/prefix_handle.h"

namespace hayate::kv {

class KvCache;

class SequenceCache {
 public:
  ~SequenceCache();
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;

  // Makes room for the row [begin, end) of the step being planned: pages for every position before
  // `end`, evicting unpinned prefixes if it must. Gives up window pages that no position ≥ begin
  // reads; where the row's start is not known yet, `begin` is the smallest it can turn out to be.
  // Writes what changed since the last call to plan.page_updates. Returns false, with the plan
  // untouched, when a pool cannot provide: take pages off another sequence, or wait for deferred
  // ones. O(groups) when no page begins or ends.
  [[nodiscard]] bool Reserve(int32_t begin, int32_t end, StepPlan& plan);

  // Hands the complete pages of positions [0, num_computed) to the tree. `tokens` are the
  // sequence's, at least num_computed of them, and the steps that compute them are submitted: steps
  // run in order, so nobody can read a page before it is written. Where the tree already holds a
  // page for the same tokens, the sequence switches to it from the next Reserve on. O(1) when no
  // page was filled since the last call.
  void Publish(std::span<const TokenId> tokens, int32_t num_computed);

  // Pages are named as they are published: one that ends a key's prefix takes on its hash. Keys by
  // length, alive as long as this. Nothing when the cache keeps no names.
  void NameBy(std::span<const PrefixKey> keys);

  SlotId slot() const { return slot_; }
  // Length of the prefix that was in the cache when the sequence began.
  int32_t num_cached_tokens() const { return num_cached_tokens_; }
  // Where the sequence's first row begins: behind the prefix, or so many tokens before its end that
  // replayed groups come back. A page border.
  int32_t first_position() const { return first_position_; }
  // Positions in [first_position, num_reserved) have pages, and those before that rows read.
  int32_t num_reserved() const { return num_reserved_; }
  int32_t num_published() const { return prefix_.num_tokens(); }
  // The page table; kNoPage where a window dropped the page. A state group has one entry, whose
  // bytes are undefined until a row that begins at a page border writes them.
  std::span<const PageId> pages(int group) const { return tables_[static_cast<size_t>(group)]; }

 private:
  friend class KvCache;
  struct ChangedEntry {
    int32_t group;
    int32_t index;
  };
  SequenceCache(KvCache& cache, SlotId slot, PrefixHandle prefix);
  // Calls visit(group, page) for each page that is not the tree's.
  template <typename Visit>
  void VisitOwnPages(Visit visit) const;
  // Compares the tables with the pinned prefix; counts our own pages in seen[group][page].
  Status CheckTables(std::vector<std::vector<int32_t>>& seen) const;
  void DropBeforeWindow(int32_t position);
  bool Grow(int32_t num_pages);
  bool PublishPage(std::span<const TokenId> page_tokens);
  void NamePages();

  KvCache& cache_;
  const SlotId slot_;
  PrefixHandle prefix_;
  const int32_t num_cached_tokens_;
  const int32_t first_position_;
  int32_t num_reserved_;                             // whole pages
  size_t registry_index_ = 0;                        // in KvCache::sequences_
  std::vector<std::vector<PageId>> tables_;          // per group
  std::array<int32_t, kMaxGroups> live_begin_ = {};  // window groups: pages before are dropped
  int32_t next_drop_ = 0;              // no window page is dropped for positions below
  std::vector<ChangedEntry> changed_;  // not in any plan yet
  std::span<const PrefixKey> keys_;    // whose pages are not published yet
};

}  // namespace hayate::kv
