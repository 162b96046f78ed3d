#pragma once
// The radix tree as a map from whole token prefixes to what each group holds there. Pins are found
// by looking at every handle, and the eviction order by comparing times.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "tensor/cache_layout.h"

namespace hayate::kv {

using Tokens = std::vector<TokenId>;

inline bool IsBase(const CacheGroup& group) {
  return group.kind == CacheKind::kFull || group.kind == CacheKind::kCompressed;
}

class NaiveTree {
 public:
  struct Held {
    PageId page = kNoPage;
    bool was_pinned = false;
    uint64_t idle_since = 0;
  };
  struct Prefix {
    std::vector<Held> held;  // per group
    bool was_pinned = false;
    uint64_t idle_since = 0;
  };
  struct Handle {
    std::string name_space;
    Tokens tokens;
    std::vector<int32_t> pinned_begin;  // per group, in pages
  };
  using Key = std::pair<std::string, Tokens>;

  explicit NaiveTree(const CacheLayout& layout) : layout_(layout) {}

  int32_t MatchLength(const std::string& name_space, const Tokens& tokens) const {
    const auto page = static_cast<size_t>(layout_.page_tokens);
    for (size_t n = tokens.size() / page * page; n > 0; n -= page) {
      if (IsReusable(name_space, tokens, n)) return static_cast<int32_t>(n);
    }
    return 0;
  }

  bool IsPinned(const Key& key) const {
    return std::any_of(handles.begin(), handles.end(), [&](const Handle& handle) {
      return handle.name_space == key.first && handle.tokens.size() >= key.second.size() &&
             std::equal(key.second.begin(), key.second.end(), handle.tokens.begin());
    });
  }
  bool IsPagePinned(const Key& key, size_t g) const {
    const auto index = static_cast<int32_t>(key.second.size()) / layout_.page_tokens - 1;
    return std::any_of(handles.begin(), handles.end(), [&](const Handle& handle) {
      return handle.name_space == key.first && handle.tokens.size() >= key.second.size() &&
             std::equal(key.second.begin(), key.second.end(), handle.tokens.begin()) &&
             index >= handle.pinned_begin[g];
    });
  }

  // Call after each change of handles: notes what has just become idle.
  void Settle() {
    std::vector<Key> deepest_first;
    for (const auto& [key, prefix] : prefixes) deepest_first.push_back(key);
    std::stable_sort(deepest_first.begin(), deepest_first.end(),
                     [](const Key& a, const Key& b) { return a.second.size() > b.second.size(); });
    for (const Key& key : deepest_first) {
      Prefix& prefix = prefixes.at(key);
      const bool is_pinned = IsPinned(key);
      if (prefix.was_pinned && !is_pinned) prefix.idle_since = ++now_;
      prefix.was_pinned = is_pinned;
    }
    for (auto key = deepest_first.rbegin(); key != deepest_first.rend(); ++key) {
      for (size_t g = 0; g < layout_.groups.size(); ++g) {
        Held& held = prefixes.at(*key).held[g];
        if (held.page == kNoPage || IsBase(layout_.groups[g])) continue;
        const bool is_pinned = IsPagePinned(*key, g);
        if (!is_pinned && (held.was_pinned || held.idle_since == 0)) held.idle_since = ++now_;
        held.was_pinned = is_pinned;
      }
    }
  }

  int32_t NumEvictable(size_t g) const {
    int32_t count = 0;
    for (const auto& [key, prefix] : prefixes) {
      if (IsBase(layout_.groups[g])) {
        count += !IsPinned(key);
      } else {
        count += prefix.held[g].page != kNoPage && !IsPagePinned(key, g);
      }
    }
    return count;
  }

  bool EvictOne(size_t g) {
    std::map<Key, Prefix>::iterator victim = prefixes.end();
    for (auto it = prefixes.begin(); it != prefixes.end(); ++it) {
      if (IsBase(layout_.groups[g])) {
        if (IsPinned(it->first) || HasChildren(it->first)) continue;
        if (victim == prefixes.end() || it->second.idle_since < victim->second.idle_since)
          victim = it;
      } else {
        if (it->second.held[g].page == kNoPage || IsPagePinned(it->first, g)) continue;
        if (victim == prefixes.end() ||
            it->second.held[g].idle_since < victim->second.held[g].idle_since) {
          victim = it;
        }
      }
    }
    if (victim == prefixes.end()) return false;
    if (IsBase(layout_.groups[g])) {
      prefixes.erase(victim);
    } else {
      victim->second.held[g] = {};
    }
    return true;
  }

  void EvictAll() {
    std::erase_if(prefixes, [this](const auto& item) { return !IsPinned(item.first); });
    for (auto& [key, prefix] : prefixes) {
      for (size_t g = 0; g < layout_.groups.size(); ++g) {
        if (!IsBase(layout_.groups[g]) && !IsPagePinned(key, g)) prefix.held[g] = {};
      }
    }
  }

  std::map<Key, Prefix> prefixes;
  std::vector<Handle> handles;

 private:
  bool HasChildren(const Key& key) const {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& item) {
      return item.first.first == key.first && item.first.second.size() > key.second.size() &&
             std::equal(key.second.begin(), key.second.end(), item.first.second.begin());
    });
  }
  bool IsReusable(const std::string& name_space, const Tokens& tokens, size_t n) const {
    const auto page = static_cast<size_t>(layout_.page_tokens);
    for (size_t end = page; end <= n; end += page) {
      const auto found = prefixes.find({name_space, Tokens(tokens.begin(), tokens.begin() + end)});
      if (found == prefixes.end()) return false;
      for (size_t g = 0; g < layout_.groups.size(); ++g) {
        const CacheGroup& group = layout_.groups[g];
        const auto window = static_cast<size_t>(group.window);
        const bool is_needed = IsBase(group) ||
                               // The page's last token is among the window − 1 before n.
                               (group.kind == CacheKind::kWindow && end + window > n + 1);
        if (is_needed && found->second.held[g].page == kNoPage) return false;
      }
    }
    return true;
  }

  const CacheLayout& layout_;
  uint64_t now_ = 0;
};

}  // namespace hayate::kv
