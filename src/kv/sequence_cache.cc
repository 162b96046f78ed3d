#include "kv/sequence_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "kv/kv_cache.h"

namespace hayate::kv {

SequenceCache::SequenceCache(KvCache& cache, SlotId slot, PrefixHandle prefix)
    : cache_(cache),
      slot_(slot),
      prefix_(std::move(prefix)),
      num_cached_tokens_(prefix_.num_tokens()),
      num_reserved_(num_cached_tokens_),
      tables_(static_cast<size_t>(cache.num_groups())) {
  for (int g = 0; g < cache_.num_groups(); ++g) {
    if (cache_.kind(g) == CacheKind::kState) continue;
    const int32_t begin = cache_.kind(g) == CacheKind::kWindow ? prefix_.pinned_begin(g) : 0;
    live_begin_[static_cast<size_t>(g)] = begin;
    std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    table.assign(static_cast<size_t>(prefix_.num_pages()), kNoPage);
    for (int32_t i = begin; i < prefix_.num_pages(); ++i) {
      table[static_cast<size_t>(i)] = prefix_.page(g, i);
      changed_.push_back({g, i});
    }
  }
}

template <typename Visit>
void SequenceCache::VisitOwnPages(Visit visit) const {
  for (int g = 0; g < cache_.num_groups(); ++g) {
    const std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    const int32_t num_shared = cache_.kind(g) == CacheKind::kState ? 0 : prefix_.num_pages();
    for (size_t i = static_cast<size_t>(num_shared); i < table.size(); ++i) {
      if (table[i] != kNoPage) visit(g, table[i]);
    }
  }
}

SequenceCache::~SequenceCache() {
  VisitOwnPages([this](int group, PageId page) { cache_.FreeLater(group, page); });
  cache_.End(*this);
}

bool SequenceCache::Reserve(int32_t begin, int32_t end, StepPlan& plan) {
  DCHECK(0 <= begin && begin < end) << begin << ' ' << end;
  if (end <= num_reserved_ && begin < next_drop_ && changed_.empty()) return true;
  DropBeforeWindow(begin);
  if (!Grow(CeilDiv(end, cache_.page_tokens()))) return false;
  for (const auto& [group, index] : changed_) {
    const PageId page = tables_[static_cast<size_t>(group)][static_cast<size_t>(index)];
    plan.page_updates.push_back({slot_, group, index, page});
  }
  changed_.clear();
  return true;
}

// Every table reaches num_pages, and a state group has its live page; or nothing changes.
bool SequenceCache::Grow(int32_t num_pages) {
  const int32_t num_present = num_reserved_ / cache_.page_tokens();
  const int32_t num_new = std::max(0, num_pages - num_present);
  std::array<int32_t, kMaxGroups> num_needed = {};
  for (int g = 0; g < cache_.num_groups(); ++g) {
    const bool is_state = cache_.kind(g) == CacheKind::kState;
    const bool has_state = !tables_[static_cast<size_t>(g)].empty();
    num_needed[static_cast<size_t>(g)] = is_state ? (has_state ? 0 : 1) : num_new;
    if (num_needed[static_cast<size_t>(g)] > cache_.num_available(g)) return false;
  }
  for (int g = 0; g < cache_.num_groups(); ++g) {
    std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    cache_.EvictUntilFree(g, num_needed[static_cast<size_t>(g)]);
    for (int32_t i = 0; i < num_needed[static_cast<size_t>(g)]; ++i) {
      changed_.push_back({g, static_cast<int32_t>(table.size())});
      table.push_back(cache_.Allocate(g));
    }
  }
  num_reserved_ += num_new * cache_.page_tokens();
  return true;
}

void SequenceCache::DropBeforeWindow(int32_t position) {
  if (position < next_drop_) return;
  next_drop_ = std::numeric_limits<int32_t>::max();
  for (int g = 0; g < cache_.num_groups(); ++g) {
    if (cache_.kind(g) != CacheKind::kWindow) continue;
    std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    int32_t& live_begin = live_begin_[static_cast<size_t>(g)];
    const int32_t window = cache_.layout().groups[static_cast<size_t>(g)].window;
    const int32_t page_tokens = cache_.page_tokens();
    const int32_t new_begin = std::clamp(FirstWindowPage(position, window, page_tokens), live_begin,
                                         static_cast<int32_t>(table.size()));
    next_drop_ = std::min(next_drop_, (new_begin + 1) * page_tokens + window - 1);
    cache_.UnpinLater(prefix_, g, std::min(new_begin, prefix_.num_pages()));
    for (; live_begin < new_begin; ++live_begin) {
      PageId& page = table[static_cast<size_t>(live_begin)];
      if (live_begin >= prefix_.num_pages()) cache_.FreeLater(g, page);
      page = kNoPage;
      changed_.push_back({g, live_begin});
    }
  }
}

void SequenceCache::Publish(std::span<const TokenId> tokens, int32_t num_computed) {
  const int32_t page_tokens = cache_.page_tokens();
  CHECK(num_computed <= num_reserved_ && static_cast<size_t>(num_computed) <= tokens.size())
      << num_computed << " computed, " << num_reserved_ << " reserved, " << tokens.size()
      << " known";
  if (!cache_.publishes()) return;
  while ((prefix_.num_pages() + 1) * page_tokens <= num_computed) {
    const auto begin = static_cast<size_t>(prefix_.num_tokens());
    if (!PublishPage(tokens.subspan(begin, static_cast<size_t>(page_tokens)))) break;
  }
}

bool SequenceCache::PublishPage(std::span<const TokenId> page_tokens) {
  const int32_t index = prefix_.num_pages();
  std::array<PageId, kMaxGroups> own;
  own.fill(kNoPage);
  for (int g = 0; g < cache_.num_groups(); ++g) {
    if (cache_.kind(g) == CacheKind::kState) continue;
    own[static_cast<size_t>(g)] = tables_[static_cast<size_t>(g)][static_cast<size_t>(index)];
  }
  std::array<PageId, kMaxGroups> held = own;
  if (!cache_.tree_.Append(prefix_, page_tokens, std::span(held).first(tables_.size())))
    return false;
  for (int g = 0; g < cache_.num_groups(); ++g) {
    const PageId page = held[static_cast<size_t>(g)];
    if (page == own[static_cast<size_t>(g)]) continue;
    cache_.FreeLater(g, own[static_cast<size_t>(g)]);
    tables_[static_cast<size_t>(g)][static_cast<size_t>(index)] = page;
    changed_.push_back({g, index});
  }
  return true;
}

Status SequenceCache::CheckTables(std::vector<std::vector<int32_t>>& seen) const {
  VisitOwnPages([&seen](int group, PageId page) {
    ++seen[static_cast<size_t>(group)][static_cast<size_t>(page.value)];
  });
  for (int g = 0; g < cache_.num_groups(); ++g) {
    const std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    if (cache_.kind(g) == CacheKind::kState) continue;
    if (static_cast<int32_t>(table.size()) * cache_.page_tokens() != num_reserved_) {
      return Error(ErrorCode::kInternal, "slot {}: table of group {} has {} pages", slot_.value, g,
                   table.size());
    }
    for (int32_t i = 0; i < static_cast<int32_t>(table.size()); ++i) {
      const PageId page = table[static_cast<size_t>(i)];
      const bool is_dropped = i < live_begin_[static_cast<size_t>(g)];
      const PageId shared = i < prefix_.num_pages() ? prefix_.page(g, i) : page;
      if (page != shared || (page == kNoPage) != is_dropped) {
        return Error(ErrorCode::kInternal, "slot {}: entry {} of group {} is {}, pinned is {}",
                     slot_.value, i, g, page.value, shared.value);
      }
    }
  }
  return OkStatus();
}

}  // namespace hayate::kv
