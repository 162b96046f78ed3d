#pragma once
// The names of cached prefixes: which keys each node of the radix tree carries, and what changed
// since the last look. Owner: engine thread.

#include <cstdint>
#include <vector>

#include "core/prefix_key.h"

namespace hayate::kv {

class PrefixNames {
 public:
  // Of one node. Different texts can have the same tokens, so that a client could name a page
  // without end; what is beyond is not told of.
  static constexpr int kMaxKeysPerNode = 32;

  // The node carries that name from now on.
  void Add(int32_t node, uint64_t hash);
  // The node goes, with all of its names.
  void Remove(int32_t node);

  // Appends what changed, in order, and forgets it.
  void TakeChanges(std::vector<PrefixKeyChange>& out);

 private:
  static constexpr int32_t kNone = -1;
  struct Entry {
    uint64_t hash;
    int32_t next;  // of the node, or of the free ones
  };

  std::vector<int32_t> first_;  // by node
  std::vector<Entry> entries_;
  int32_t free_ = kNone;
  std::vector<PrefixKeyChange> changes_;
};

}  // namespace hayate::kv
