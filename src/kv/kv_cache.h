#pragma once
// The paged KV cache's books: pools, radix tree and the sequences' page tables. No bytes here:
// plans carry page numbers to the workers, which own the storage.
//
// A page is in exactly one place at a time:
//
//   free ──Reserve──▶ a sequence ──Publish──▶ the tree ──evict──▶ free
//                         └────── deferred (until the steps in flight are done) ──▶ free
//
// Owner: engine thread. Never blocks.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/ids.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"
#include "kv/sequence_cache.h"
#include "tensor/cache_layout.h"

namespace hayate::kv {

enum class PrefixReuse : uint8_t {
  kOn,
  kOff,  // nothing is published, every lookup misses
};

struct KvCacheOptions {
  CacheLayout layout;
  std::vector<int32_t> num_pages;  // per group, counting the scratch page
  PrefixReuse reuse = PrefixReuse::kOn;
  bool keeps_names = false;  // of prefixes, for TakeNameChanges
};

struct KvCacheStats {
  uint64_t lookups = 0;                                 // sequences begun
  uint64_t lookup_tokens = 0;                           // their prompts' tokens
  uint64_t hit_tokens = 0;                              // of those, found in the cache
  std::array<uint64_t, kMaxGroups> evicted_pages = {};  // per group, Flush included
};

// Where the pages of a group are; free + deferred + tree + sequences = usable.
struct PageCounts {
  int32_t usable = 0;
  int32_t free = 0;
  int32_t deferred = 0;  // given up, waiting for steps in flight
  int32_t tree = 0;
  int32_t evictable = 0;  // of tree
  int32_t sequences = 0;
};

class KvCache {
 public:
  // An error names the field of the layout or the page count that cannot work.
  static Result<std::unique_ptr<KvCache>> Create(KvCacheOptions options);
  // Every sequence and handle must be gone.
  ~KvCache();

  // The longest reusable prefix of at most max_tokens, pinned. At least one token is left to
  // compute: shorter than `tokens`.
  PrefixHandle Match(std::string_view name_space, std::span<const TokenId> tokens,
                     int32_t max_tokens);
  // Its length alone, for ordering a queue: pins nothing, counts as no use.
  int32_t MatchLength(std::string_view name_space, std::span<const TokenId> tokens,
                      int32_t max_tokens) const;

  // A sequence starts in `slot` behind `prefix`. Takes no page yet: Reserve does.
  std::unique_ptr<SequenceCache> Begin(SlotId slot, PrefixHandle prefix, int32_t num_prompt_tokens);

  // Tell the cache which steps are in flight: what is given up waits for the newest step submitted.
  void StepSubmitted(uint64_t step);
  void StepRetired(uint64_t step);

  // Pages a Reserve can get: free or evictable.
  int32_t num_available(int group) const;
  // The most pages of the group that a sequence of num_tokens holds at once, with rows of at most
  // max_row_tokens. More than PageCounts::usable: it can never run.
  int32_t PeakPages(int group, int32_t num_tokens, int32_t max_row_tokens) const;

  // Drops every prefix that is not pinned.
  void Flush();

  // Appends how the names of cached prefixes changed since the last call, in order. A name stands
  // for whole pages of the full and compressed groups; window groups may have dropped theirs.
  void TakeNameChanges(std::vector<PrefixKeyChange>& out) { names_.TakeChanges(out); }

  int num_groups() const { return static_cast<int>(layout_.groups.size()); }
  int32_t page_tokens() const { return layout_.page_tokens; }
  const CacheLayout& layout() const { return layout_; }
  PageCounts counts(int group) const;
  KvCacheStats stats() const;

  // Recounts every page and pin from scratch; an error says what does not add up. O(everything).
  Status CheckIntegrity() const;

 private:
  friend class SequenceCache;
  // Something given up that a step in flight may still touch: a page, or a pin.
  struct Deferred {
    uint64_t after_step = 0;
    PageId page;  // of pin.group; kNoPage: the pin
    Pin pin;
  };

  explicit KvCache(KvCacheOptions options);
  const CacheGroup& group(int index) const { return layout_.groups[static_cast<size_t>(index)]; }
  CacheKind kind(int group_index) const { return group(group_index).kind; }
  // Whether the tree holds pages of the group.
  bool is_shared(int index) const {
    return group(index).kind != CacheKind::kState && !group(index).replayed;
  }
  bool publishes() const { return reuse_ == PrefixReuse::kOn; }
  bool keeps_names() const { return keeps_names_; }
  void EvictUntilFree(int group, int32_t num_pages);
  // A page must be free.
  PageId Allocate(int group);
  void FreeLater(int group, PageId page);
  // The prefix's pins on pages before new_begin of a window group.
  void UnpinLater(PrefixHandle& prefix, int group, int32_t new_begin);
  void Defer(Deferred deferred);
  void Settle(const Deferred& deferred);
  void End(SequenceCache& sequence);

  const CacheLayout layout_;
  const PrefixReuse reuse_;
  const bool keeps_names_;
  std::vector<PagePool> pools_;
  PrefixNames names_;
  RadixTree tree_;
  std::vector<SequenceCache*> sequences_;
  std::vector<Deferred> deferred_;           // oldest step first
  std::vector<int32_t> num_deferred_pages_;  // per group
  std::vector<Pin> scratch_pins_;
  uint64_t submitted_end_ = 0;  // steps below were submitted
  uint64_t retired_end_ = 0;    // steps below are done
  KvCacheStats stats_;
};

}  // namespace hayate::kv
