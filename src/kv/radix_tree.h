#pragma once
// Which prefixes are cached: one radix tree over all cache groups, keyed by namespace and token
// ids.
//
// An edge is one page of tokens, so a node stands for a prefix of whole pages and holds at most one
// page per group. Everything that can happen to a prefix happens to whole pages: nodes never split,
// a pin or an eviction has one meaning, memory is bounded by the pools, and only Match allocates.
// What a node keeps depends on the group's kind:
//
//   full, compressed  always present; the page goes when the node goes ("base" groups)
//   window            present or dropped (a tombstone), which a later Append heals
//   state             nothing: it is empty where a page ends
//   replayed window   nothing: whoever reuses the prefix computes it again
//
// Eviction takes unpinned pages only. Base: the least recently used node without children, with all
// it holds. Window: the group's own least recently used page, wherever it is in the tree.
// Owner: engine thread.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "core/ids.h"
#include "kv/lru_list.h"
#include "kv/page_pool.h"
#include "kv/prefix_handle.h"
#include "kv/prefix_names.h"
#include "tensor/cache_layout.h"

namespace hayate::kv {

// The first page that a token at `position` reads through a window of `window` tokens.
int32_t FirstWindowPage(int32_t position, int32_t window, int32_t page_tokens);

class RadixTree {
 public:
  // One pool per group; evicted pages return there. Layout and pools must outlive the tree.
  RadixTree(const CacheLayout& layout, std::span<PagePool> pools);
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // The longest prefix of whole pages of `tokens` for which every group is satisfied, pinned:
  //   base    all pages
  //   window  the pages that the token behind the prefix reads
  PrefixHandle Match(std::string_view name_space, std::span<const TokenId> tokens);
  // Its length in tokens, without pinning it and without counting as a use.
  int32_t MatchLength(std::string_view name_space, std::span<const TokenId> tokens) const;

  // Extends `at` by one page of tokens. pages[g] is the caller's page of group g, or kNoPage in
  // groups of which nodes hold nothing and in window groups of which the handle pins nothing. Where
  // the node holds no page, the tree takes the caller's; where it holds one already, pages[g]
  // becomes that one and the caller keeps its own to give back. The handle pins what pages[g] then
  // names. Returns false, with nothing changed, when no node is left (only layouts without base
  // groups).
  [[nodiscard]] bool Append(PrefixHandle& at, std::span<const TokenId> page_tokens,
                            std::span<PageId> pages);

  // Page `index` of the handle's prefix takes on a name, until its node goes. Only when names are
  // kept.
  void NamePage(const PrefixHandle& at, int32_t index, uint64_t hash) {
    names_->Add(at.path_[static_cast<size_t>(index)], hash);
  }
  // Keeps names from here on; they outlive the tree.
  void KeepNames(PrefixNames* names) { names_ = names; }

  // Makes the handle forget its pins on pages before new_begin in a window group, or all
  // its pins. They are appended to `pins`, to be undone by Unpin at a time of the caller's choice.
  void TakePins(PrefixHandle& handle, int group, int32_t new_begin, std::vector<Pin>& pins);
  void TakeAllPins(PrefixHandle& handle, std::vector<Pin>& pins);
  void Unpin(Pin pin);

  // Frees up to num_pages pages of the group, least recently used first; returns how many.
  int32_t Evict(int group, int32_t num_pages);
  // Everything unpinned.
  void EvictAll();

  int32_t num_pages(int group) const { return group_state(group).num_pages; }
  // How many Evict could free.
  int32_t num_evictable(int group) const;
  // Pages that eviction freed since the start.
  uint64_t num_evicted(int group) const { return group_state(group).num_evicted; }
  int32_t num_nodes() const { return num_nodes_; }
  int32_t num_namespaces() const { return static_cast<int32_t>(namespace_ids_.size()); }

  // Recounts links, children, pages and pins; the first contradiction is the error. `known_pins`
  // are those that the caller can account for (handles elsewhere may hold more). Counts the pages
  // it finds in seen[g][page].
  Status CheckIntegrity(std::span<const Pin> known_pins,
                        std::vector<std::vector<int32_t>>& seen) const;
  void CollectPins(const PrefixHandle& handle, std::vector<Pin>& pins) const;

 private:
  friend class PrefixHandle;

  struct Node {
    int32_t parent;        // a node, or ~namespace
    int32_t likely_child;  // the child used last, or kNone: spares hashing on unbranched paths
    int32_t bucket_next;
    int32_t num_children;
    int32_t pins;  // handles that end here + children with pins; 0: in node_lru_
    uint32_t hash;
  };
  struct Entry {
    PageId page;
    int32_t pins;  // window groups; base groups live by the node's pins
  };
  struct Namespace {
    std::string name;
    int32_t uses = 0;  // nodes directly below + handles
    int32_t likely_child = kNone;
  };
  struct GroupState {
    explicit GroupState(const CacheGroup& group, int32_t capacity);
    bool is_base;
    bool is_absent;  // nodes hold nothing of it
    int32_t window;
    LruList lru;  // nodes whose page is unpinned; unused by base groups
    int32_t num_pages = 0;
    uint64_t num_evicted = 0;
  };
  static constexpr int32_t kNone = -1;

  const GroupState& group_state(int group) const { return groups_[static_cast<size_t>(group)]; }
  Node& node(int32_t id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  Entry& entry(int32_t id, size_t group) {
    return entries_[static_cast<size_t>(id) * groups_.size() + group];
  }
  const Entry& entry(int32_t id, size_t group) const {
    return entries_[static_cast<size_t>(id) * groups_.size() + group];
  }
  TokenId* tokens(int32_t id) { return &tokens_[static_cast<size_t>(id) * page_size_]; }
  const TokenId* tokens(int32_t id) const { return &tokens_[static_cast<size_t>(id) * page_size_]; }
  int32_t& likely_child(int32_t parent);

  template <typename Visit>
  int32_t Walk(int32_t name_space, std::span<const TokenId> tokens, Visit visit) const;
  uint32_t HashPage(int32_t parent, const TokenId* page) const;
  int32_t FindChild(int32_t parent, const TokenId* page) const;
  int32_t CreateNode(int32_t parent, const TokenId* page);
  void RemoveNode(int32_t id);
  void DropPage(int32_t id, size_t group);
  int32_t UseNamespace(std::string_view name);
  void UnuseNamespace(int32_t id);
  Status CheckEvictionOrder() const;
  void PinNode(int32_t id);
  void UnpinNode(int32_t id);
  void PinPage(int32_t id, size_t group);
  void UnpinPage(int32_t id, size_t group);

  const int32_t page_tokens_;
  const size_t page_size_;  // page_tokens_, for indexing
  const std::span<PagePool> pools_;
  const uint64_t hash_seed_;
  int32_t capacity_;
  bool has_base_ = false;
  std::vector<GroupState> groups_;

  // Per node id; committed as ids are first used.
  std::unique_ptr<Node[]> nodes_;      // [capacity]
  std::unique_ptr<Entry[]> entries_;   // [capacity, groups]
  std::unique_ptr<TokenId[]> tokens_;  // [capacity, page tokens]
  std::vector<int32_t> free_nodes_;    // a stack of ids used before
  int32_t num_touched_ = 0;            // ids below were used before
  int32_t num_nodes_ = 0;
  LruList node_lru_;  // nodes without pins. A parent is always newer than its children, so the
                      // oldest node has none
  std::vector<int32_t> buckets_;  // hash → first node; a power of two
  std::vector<Namespace> namespaces_;
  std::vector<int32_t> free_namespaces_;
  std::unordered_map<std::string, int32_t> namespace_ids_;
  PrefixNames* names_ = nullptr;  // null: none are kept
  int64_t num_node_pins_ = 0;     // Pins of paths outstanding
  int64_t num_page_pins_ = 0;     // Pins of single pages outstanding
};

}  // namespace hayate::kv
