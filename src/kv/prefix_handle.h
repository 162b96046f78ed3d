#pragma once
// A pinned prefix of the radix tree.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace hayate::kv {

inline constexpr int kMaxGroups = 16;

class RadixTree;

// One thing that eviction must leave alone, as a value.
struct Pin {
  int32_t node;
  int32_t group;                        // the node's page in a window group, or kPath
  static constexpr int32_t kPath = -1;  // the node and all nodes above: their pages in base groups
};

// Pins, until it is destroyed:
//   base groups    the pages of the whole prefix
//   window groups  pages [pinned_begin, num_pages): what the next token reads through the window
// The tree must outlive it. Owner: engine thread.
class PrefixHandle {
 public:
  PrefixHandle() = default;  // of no tree; only to be assigned to
  PrefixHandle(PrefixHandle&& other) noexcept { *this = std::move(other); }
  PrefixHandle& operator=(PrefixHandle&& other) noexcept;
  ~PrefixHandle() { Reset(); }

  // Unpins.
  void Reset();

  int32_t num_pages() const { return static_cast<int32_t>(path_.size()); }
  int32_t num_tokens() const;
  // Page `index` of a group; kNoPage where the handle does not pin it.
  PageId page(int group, int32_t index) const;
  // Of window groups; of groups that prefixes do not keep num_pages().
  int32_t pinned_begin(int group) const { return pinned_begin_[static_cast<size_t>(group)]; }

 private:
  friend class RadixTree;
  RadixTree* tree_ = nullptr;
  int32_t namespace_ = -1;
  std::vector<int32_t> path_;  // one node per page, shallow to deep
  std::array<int32_t, kMaxGroups> pinned_begin_ = {};
};

}  // namespace hayate::kv
