// The recount of the radix tree: every figure that is kept incrementally, from scratch.

#include <algorithm>

#include "base/error.h"
#include "kv/radix_tree.h"

namespace hayate::kv {
namespace {

template <typename... Args>
Status Broken(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorCode::kInternal, format, std::forward<Args>(args)...);
}

}  // namespace

Status RadixTree::CheckIntegrity(std::span<const Pin> known_pins,
                                 std::vector<std::vector<int32_t>>& seen) const {
  const auto touched = static_cast<size_t>(num_touched_);
  std::vector<uint8_t> is_used(touched, 1);
  for (const int32_t id : free_nodes_) is_used[static_cast<size_t>(id)] = 0;

  // What the tree's own links and the known pins account for.
  std::vector<int32_t> num_children(touched, 0), pinned_children(touched, 0), path_pins(touched, 0);
  std::vector<int32_t> page_pins(touched * groups_.size(), 0);
  std::vector<int32_t> namespace_children(namespaces_.size(), 0);
  for (const Pin& pin : known_pins) {
    const auto id = static_cast<size_t>(pin.node);
    ++(pin.group == Pin::kPath ? path_pins[id]
                               : page_pins[id * groups_.size() + static_cast<size_t>(pin.group)]);
  }
  int32_t num_nodes = 0;
  for (int32_t id = 0; id < num_touched_; ++id) {
    if (!is_used[static_cast<size_t>(id)]) continue;
    ++num_nodes;
    const Node& n = node(id);
    if (FindChild(n.parent, tokens(id)) != id) return Broken("node {} cannot be found", id);
    if (n.parent < 0) {
      ++namespace_children[static_cast<size_t>(~n.parent)];
      continue;
    }
    if (!is_used[static_cast<size_t>(n.parent)]) return Broken("node {} has no parent", id);
    ++num_children[static_cast<size_t>(n.parent)];
    pinned_children[static_cast<size_t>(n.parent)] += n.pins > 0;
  }
  if (num_nodes != num_nodes_) return Broken("{} nodes, counted {}", num_nodes, num_nodes_);

  int64_t node_pins = 0, page_pin_total = 0;
  int32_t num_unpinned = 0;
  std::vector<int32_t> num_pages(groups_.size(), 0), num_idle_pages(groups_.size(), 0);
  for (int32_t id = 0; id < num_touched_; ++id) {
    const auto i = static_cast<size_t>(id);
    if (!is_used[i]) continue;
    const Node& n = node(id);
    if (n.num_children != num_children[i]) return Broken("node {}: wrong child count", id);
    if (n.pins - pinned_children[i] < path_pins[i]) return Broken("node {}: lost pins", id);
    if (node_lru_.Contains(id) != (n.pins == 0)) return Broken("node {}: pinned in the LRU", id);
    node_pins += n.pins - pinned_children[i];
    num_unpinned += n.pins == 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Entry& held = entry(id, g);
      const bool present = held.page != kNoPage;
      page_pin_total += held.pins;
      if (held.pins < page_pins[i * groups_.size() + g])
        return Broken("node {}: lost page pins", id);
      if (held.pins > 0 && (!present || n.pins == 0)) return Broken("node {}: stray page pin", id);
      if (groups_[g].is_base && !present) return Broken("node {} lacks a page of {}", id, g);
      if (!groups_[g].is_base && groups_[g].lru.Contains(id) != (present && held.pins == 0)) {
        return Broken("node {}: wrong LRU state in group {}", id, g);
      }
      if (!present) continue;
      ++seen[g][static_cast<size_t>(held.page.value)];
      ++num_pages[g];
      num_idle_pages[g] += held.pins == 0;
    }
  }
  if (node_pins != num_node_pins_ || page_pin_total != num_page_pins_) {
    return Broken("pins: {} and {}, counted {} and {}", node_pins, page_pin_total, num_node_pins_,
                  num_page_pins_);
  }
  if (num_unpinned != node_lru_.size()) return Broken("the node LRU has a wrong size");
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (num_pages[g] != groups_[g].num_pages) return Broken("group {}: wrong page count", g);
    if (!groups_[g].is_base && num_idle_pages[g] != groups_[g].lru.size()) {
      return Broken("group {}: the LRU has a wrong size", g);
    }
  }
  for (const auto& [name, id] : namespace_ids_) {
    const Namespace& used = namespaces_[static_cast<size_t>(id)];
    if (used.name != name || used.uses < std::max(1, namespace_children[static_cast<size_t>(id)])) {
      return Broken("namespace '{}' is kept without use", name);
    }
  }
  return CheckEvictionOrder();
}

// A parent must be newer than its children, or eviction would meet an inner node.
Status RadixTree::CheckEvictionOrder() const {
  std::vector<uint8_t> passed(static_cast<size_t>(num_touched_), 0);
  for (int32_t id = node_lru_.oldest(); id != LruList::kNone; id = node_lru_.newer(id)) {
    passed[static_cast<size_t>(id)] = 1;
    const int32_t parent = node(id).parent;
    if (parent >= 0 && passed[static_cast<size_t>(parent)]) {
      return Broken("node {} would be evicted after its parent", id);
    }
  }
  return OkStatus();
}

}  // namespace hayate::kv
