// Nodes, namespaces and eviction of the radix tree.

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kv/radix_tree.h"

namespace hayate::kv {
namespace {

// Folds the 128-bit product: each bit of the result depends on all bits of both factors.
uint64_t Mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

int32_t& RadixTree::likely_child(int32_t parent) {
  return parent >= 0 ? node(parent).likely_child
                     : namespaces_[static_cast<size_t>(~parent)].likely_child;
}

// Seeded per process, so that no client can prepare prompts that share a bucket.
uint32_t RadixTree::HashPage(int32_t parent, const TokenId* page) const {
  uint64_t hash = hash_seed_ ^ (static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32);
  for (size_t i = 0; i < page_size_; i += 2) {
    uint64_t pair = static_cast<uint32_t>(page[i]);
    if (i + 1 < page_size_) pair |= static_cast<uint64_t>(static_cast<uint32_t>(page[i + 1])) << 32;
    hash = Mix(hash ^ pair ^ 0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u);
  }
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

int32_t RadixTree::FindChild(int32_t parent, const TokenId* page) const {
  const size_t bytes = page_size_ * sizeof(TokenId);
  const int32_t likely = parent >= 0 ? node(parent).likely_child
                                     : namespaces_[static_cast<size_t>(~parent)].likely_child;
  if (likely != kNone && std::memcmp(tokens(likely), page, bytes) == 0) return likely;
  const uint32_t hash = HashPage(parent, page);
  int32_t id = buckets_[hash & (buckets_.size() - 1)];
  while (id != kNone && !(node(id).hash == hash && node(id).parent == parent &&
                          std::memcmp(tokens(id), page, bytes) == 0)) {
    id = node(id).bucket_next;
  }
  return id;
}

int32_t RadixTree::CreateNode(int32_t parent, const TokenId* page) {
  if (free_nodes_.empty() && num_touched_ == capacity_) {
    CHECK(!has_base_) << "more nodes than pages";
    if (node_lru_.size() == 0) return kNone;
    RemoveNode(node_lru_.oldest());
  }
  int32_t id = num_touched_;
  if (free_nodes_.empty()) {
    ++num_touched_;
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  const uint32_t hash = HashPage(parent, page);
  int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  node(id) = {.parent = parent, .likely_child = kNone, .bucket_next = bucket, .hash = hash};
  bucket = id;
  std::copy_n(page, page_size_, tokens(id));
  for (size_t g = 0; g < groups_.size(); ++g) {
    entry(id, g) = {kNoPage, 0};
    if (!groups_[g].is_base) groups_[g].lru.Track(id);
  }
  node_lru_.Track(id);
  node_lru_.PushNewest(id);
  ++num_nodes_;
  ++(parent >= 0 ? node(parent).num_children : namespaces_[static_cast<size_t>(~parent)].uses);
  return id;
}

void RadixTree::RemoveNode(int32_t id) {
  const Node gone = node(id);
  CHECK(gone.num_children == 0 && gone.pins == 0) << "node " << id << " is in use";
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (entry(id, g).page != kNoPage) DropPage(id, g);
  }
  node_lru_.Remove(id);
  int32_t* link = &buckets_[gone.hash & (buckets_.size() - 1)];
  while (*link != id) link = &node(*link).bucket_next;
  *link = gone.bucket_next;
  if (likely_child(gone.parent) == id) likely_child(gone.parent) = kNone;
  if (gone.parent >= 0) {
    --node(gone.parent).num_children;
  } else {
    UnuseNamespace(~gone.parent);
  }
  if (names_ != nullptr) names_->Remove(id);
  free_nodes_.push_back(id);
  --num_nodes_;
}

void RadixTree::DropPage(int32_t id, size_t group) {
  GroupState& state = groups_[group];
  Entry& held = entry(id, group);
  if (!state.is_base) state.lru.Remove(id);
  pools_[group].Free(held.page);
  held.page = kNoPage;
  --state.num_pages;
  ++state.num_evicted;
}

int32_t RadixTree::num_evictable(int group) const {
  const GroupState& state = group_state(group);
  return state.is_base ? node_lru_.size() : state.lru.size();
}

int32_t RadixTree::Evict(int group, int32_t num_pages) {
  const auto g = static_cast<size_t>(group);
  const int32_t count = std::min(num_pages, num_evictable(group));
  for (int32_t i = 0; i < count; ++i) {
    if (groups_[g].is_base) {
      RemoveNode(node_lru_.oldest());
    } else {
      DropPage(groups_[g].lru.oldest(), g);
    }
  }
  return count;
}

void RadixTree::EvictAll() {
  while (node_lru_.size() > 0) RemoveNode(node_lru_.oldest());
  for (size_t g = 0; g < groups_.size(); ++g) {
    while (groups_[g].lru.size() > 0) DropPage(groups_[g].lru.oldest(), g);
  }
}

int32_t RadixTree::UseNamespace(std::string_view name) {
  const auto [found, is_new] = namespace_ids_.try_emplace(std::string(name), kNone);
  if (is_new) {
    if (free_namespaces_.empty()) {
      free_namespaces_.push_back(static_cast<int32_t>(namespaces_.size()));
      namespaces_.emplace_back();
    }
    found->second = free_namespaces_.back();
    free_namespaces_.pop_back();
    namespaces_[static_cast<size_t>(found->second)] = {.name = std::string(name)};
  }
  ++namespaces_[static_cast<size_t>(found->second)].uses;
  return found->second;
}

void RadixTree::UnuseNamespace(int32_t id) {
  Namespace& used = namespaces_[static_cast<size_t>(id)];
  if (--used.uses > 0) return;
  namespace_ids_.erase(used.name);
  free_namespaces_.push_back(id);
}

}  // namespace hayate::kv
