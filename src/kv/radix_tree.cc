#include "kv/radix_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>

#include "base/check.h"

namespace hayate::kv {
namespace {

// Nodes of a layout without base groups are not bounded by pages; beyond this many, the least
// recently used node makes room.
constexpr int32_t kMaxUnbackedNodes = 1 << 16;

bool IsBase(CacheKind kind) { return kind == CacheKind::kFull || kind == CacheKind::kCompressed; }

// Every node holds a page of each base group, so the smallest of their pools bounds the nodes.
int32_t NodeCapacity(const CacheLayout& layout, std::span<const PagePool> pools) {
  int32_t capacity = std::numeric_limits<int32_t>::max();
  for (size_t g = 0; g < pools.size(); ++g) {
    if (IsBase(layout.groups[g].kind)) capacity = std::min(capacity, pools[g].num_usable());
  }
  return capacity == std::numeric_limits<int32_t>::max() ? kMaxUnbackedNodes : capacity;
}

}  // namespace

int32_t FirstWindowPage(int32_t position, int32_t window, int32_t page_tokens) {
  return std::max(0, position - window + 1) / page_tokens;
}

RadixTree::GroupState::GroupState(const CacheGroup& group, int32_t capacity)
    : is_base(IsBase(group.kind)),
      is_absent(group.kind == CacheKind::kState || group.replayed),
      window(group.window),
      lru(is_base ? 0 : capacity) {}

RadixTree::RadixTree(const CacheLayout& layout, std::span<PagePool> pools)
    : page_tokens_(layout.page_tokens),
      page_size_(static_cast<size_t>(layout.page_tokens)),
      pools_(pools),
      hash_seed_(std::random_device{}()),
      capacity_(NodeCapacity(layout, pools)),
      node_lru_(capacity_) {
  CHECK(pools.size() == layout.groups.size() && pools.size() <= size_t{kMaxGroups});
  const auto capacity = static_cast<size_t>(capacity_);
  groups_.reserve(pools.size());
  for (const CacheGroup& group : layout.groups) {
    groups_.emplace_back(group, capacity_);
    has_base_ |= IsBase(group.kind);
  }
  nodes_ = std::make_unique_for_overwrite<Node[]>(capacity);
  entries_ = std::make_unique_for_overwrite<Entry[]>(capacity * groups_.size());
  tokens_ = std::make_unique_for_overwrite<TokenId[]>(capacity * page_size_);
  buckets_.assign(std::bit_ceil(capacity), kNone);
}

RadixTree::~RadixTree() { CHECK_EQ(num_node_pins_ + num_page_pins_, 0) << "pins outlive the tree"; }

template <typename Visit>
int32_t RadixTree::Walk(int32_t name_space, std::span<const TokenId> tokens, Visit visit) const {
  // Of window groups: where the unbroken run of pages that ends here began.
  std::array<int32_t, kMaxGroups> run_begin = {};
  int32_t parent = ~name_space;
  int32_t depth = 0;
  int32_t satisfied = 0;
  for (; tokens.size() >= page_size_; tokens = tokens.subspan(page_size_)) {
    const int32_t child = FindChild(parent, tokens.data());
    if (child == kNone) break;
    visit(child);
    ++depth;
    bool all_groups = true;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const GroupState& group = groups_[g];
      if (group.is_base || group.is_absent) continue;
      if (entry(child, g).page == kNoPage) run_begin[g] = depth;
      all_groups &=
          run_begin[g] <= FirstWindowPage(depth * page_tokens_, group.window, page_tokens_);
    }
    if (all_groups) satisfied = depth;
    parent = child;
  }
  return satisfied;
}

int32_t RadixTree::MatchLength(std::string_view name_space, std::span<const TokenId> tokens) const {
  const auto found = namespace_ids_.find(std::string(name_space));
  if (found == namespace_ids_.end()) return 0;
  return Walk(found->second, tokens, [](int32_t) {}) * page_tokens_;
}

PrefixHandle RadixTree::Match(std::string_view name_space, std::span<const TokenId> tokens) {
  PrefixHandle handle;
  handle.tree_ = this;
  handle.namespace_ = UseNamespace(name_space);
  std::vector<int32_t>& path = handle.path_;
  const int32_t depth =
      Walk(handle.namespace_, tokens, [&path](int32_t id) { path.push_back(id); });
  path.resize(static_cast<size_t>(depth));
  int32_t parent = ~handle.namespace_;
  for (const int32_t id : path) likely_child(std::exchange(parent, id)) = id;

  if (depth > 0) PinNode(path.back());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupState& group = groups_[g];
    if (group.is_base) continue;
    int32_t& begin = handle.pinned_begin_[g];
    begin =
        group.is_absent ? depth : FirstWindowPage(depth * page_tokens_, group.window, page_tokens_);
    for (int32_t i = begin; i < depth; ++i) PinPage(path[static_cast<size_t>(i)], g);
  }
  return handle;
}

bool RadixTree::Append(PrefixHandle& at, std::span<const TokenId> page_tokens,
                       std::span<PageId> pages) {
  CHECK(at.tree_ == this && page_tokens.size() == page_size_ && pages.size() == groups_.size());
  const int32_t parent = at.path_.empty() ? ~at.namespace_ : at.path_.back();
  int32_t child = FindChild(parent, page_tokens.data());
  if (child == kNone) child = CreateNode(parent, page_tokens.data());
  if (child == kNone) return false;
  likely_child(parent) = child;
  PinNode(child);
  if (parent >= 0) UnpinNode(parent);
  at.path_.push_back(child);

  const int32_t depth = at.num_pages();
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupState& group = groups_[g];
    Entry& held = entry(child, g);
    int32_t& pinned_begin = at.pinned_begin_[g];
    if (pages[g] == kNoPage) {
      CHECK(!group.is_base && pinned_begin == depth - 1)
          << "group " << g << " lacks page " << depth - 1;
      pinned_begin = depth;
      continue;
    }
    if (held.page == kNoPage) {
      held.page = pages[g];
      ++group.num_pages;
      if (!group.is_base) group.lru.PushNewest(child);
    } else {
      pages[g] = held.page;
    }
    if (!group.is_base) PinPage(child, g);
  }
  return true;
}

void RadixTree::CollectPins(const PrefixHandle& handle, std::vector<Pin>& pins) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].is_base) continue;
    for (int32_t i = handle.pinned_begin_[g]; i < handle.num_pages(); ++i) {
      pins.push_back({handle.path_[static_cast<size_t>(i)], static_cast<int32_t>(g)});
    }
  }
  if (!handle.path_.empty()) pins.push_back({handle.path_.back(), Pin::kPath});
}

void RadixTree::TakePins(PrefixHandle& handle, int group, int32_t new_begin,
                         std::vector<Pin>& pins) {
  const auto g = static_cast<size_t>(group);
  DCHECK(!groups_[g].is_base && new_begin <= handle.num_pages());
  int32_t& begin = handle.pinned_begin_[g];
  for (; begin < new_begin; ++begin) {
    pins.push_back({handle.path_[static_cast<size_t>(begin)], group});
  }
}

void RadixTree::TakeAllPins(PrefixHandle& handle, std::vector<Pin>& pins) {
  CollectPins(handle, pins);
  UnuseNamespace(handle.namespace_);
  handle.tree_ = nullptr;
  handle.path_.clear();
}

void RadixTree::Unpin(Pin pin) {
  if (pin.group == Pin::kPath) {
    UnpinNode(pin.node);
  } else {
    UnpinPage(pin.node, static_cast<size_t>(pin.group));
  }
}

void RadixTree::PinNode(int32_t id) {
  ++num_node_pins_;
  for (; id >= 0 && node(id).pins++ == 0; id = node(id).parent) node_lru_.Remove(id);
}

// Deepest first, so that a parent becomes more recently used than its child.
void RadixTree::UnpinNode(int32_t id) {
  --num_node_pins_;
  for (; id >= 0 && --node(id).pins == 0; id = node(id).parent) node_lru_.PushNewest(id);
}

void RadixTree::PinPage(int32_t id, size_t group) {
  ++num_page_pins_;
  if (entry(id, group).pins++ == 0) groups_[group].lru.Remove(id);
}

void RadixTree::UnpinPage(int32_t id, size_t group) {
  --num_page_pins_;
  if (--entry(id, group).pins == 0) groups_[group].lru.PushNewest(id);
}

}  // namespace hayate::kv
