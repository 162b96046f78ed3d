#include "kv/sequence_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "kv/kv_cache.h"

namespace hayate::kv {
namespace {

int32_t FirstPosition(const CacheLayout& layout, int32_t num_cached_tokens) {
  return AlignDown(std::max(0, num_cached_tokens - layout.replay_tokens), layout.page_tokens);
}

}  // namespace

SequenceCache::SequenceCache(KvCache& cache, SlotId slot, PrefixHandle prefix)
    : cache_(cache),
      slot_(slot),
      prefix_(std::move(prefix)),
      num_cached_tokens_(prefix_.num_tokens()),
      first_position_(FirstPosition(cache.layout(), num_cached_tokens_)),
      num_reserved_(first_position_),
      tables_(static_cast<size_t>(cache.num_groups())) {
  for (int g = 0; g < cache_.num_groups(); ++g) {
    if (cache_.kind(g) == CacheKind::kState) continue;
    std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    if (!cache_.is_shared(g)) {
      live_begin_[static_cast<size_t>(g)] = first_position_ / cache_.page_tokens();
      table.assign(static_cast<size_t>(live_begin_[static_cast<size_t>(g)]), kNoPage);
      continue;
    }
    const int32_t begin = cache_.kind(g) == CacheKind::kWindow ? prefix_.pinned_begin(g) : 0;
    live_begin_[static_cast<size_t>(g)] = begin;
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
    const int32_t num_shared = cache_.is_shared(g) ? prefix_.num_pages() : 0;
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
  std::array<int32_t, kMaxGroups> num_needed = {};
  for (int g = 0; g < cache_.num_groups(); ++g) {
    const int32_t num_wanted = cache_.kind(g) == CacheKind::kState ? 1 : num_pages;
    const auto num_present = static_cast<int32_t>(tables_[static_cast<size_t>(g)].size());
    num_needed[static_cast<size_t>(g)] = std::max(0, num_wanted - num_present);
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
  num_reserved_ = std::max(num_reserved_, num_pages * cache_.page_tokens());
  return true;
}

void SequenceCache::DropBeforeWindow(int32_t position) {
  if (position < next_drop_) return;
  next_drop_ = std::numeric_limits<int32_t>::max();
  for (int g = 0; g < cache_.num_groups(); ++g) {
    if (cache_.kind(g) != CacheKind::kWindow) continue;
    std::vector<PageId>& table = tables_[static_cast<size_t>(g)];
    int32_t& live_begin = live_begin_[static_cast<size_t>(g)];
    const int32_t window = cache_.group(g).window;
    const int32_t page_tokens = cache_.page_tokens();
    const int32_t new_begin = std::clamp(FirstWindowPage(position, window, page_tokens), live_begin,
                                         static_cast<int32_t>(table.size()));
    next_drop_ = std::min(next_drop_, (new_begin + 1) * page_tokens + window - 1);
    const int32_t num_shared = cache_.is_shared(g) ? prefix_.num_pages() : 0;
    cache_.UnpinLater(prefix_, g, std::min(new_begin, num_shared));
    for (; live_begin < new_begin; ++live_begin) {
      PageId& page = table[static_cast<size_t>(live_begin)];
      if (live_begin >= num_shared) cache_.FreeLater(g, page);
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
  NamePages();
}

void SequenceCache::NameBy(std::span<const PrefixKey> keys) {
  if (!cache_.keeps_names()) return;
  keys_ = keys;
  NamePages();
}

void SequenceCache::NamePages() {
  while (!keys_.empty()) {
    const int32_t end = CeilDiv(keys_.front().num_tokens, cache_.page_tokens());
    if (end > prefix_.num_pages()) return;
    if (end > 0) cache_.tree_.NamePage(prefix_, end - 1, keys_.front().hash);
    keys_ = keys_.subspan(1);
  }
}

bool SequenceCache::PublishPage(std::span<const TokenId> page_tokens) {
  const int32_t index = prefix_.num_pages();
  std::array<PageId, kMaxGroups> own;
  own.fill(kNoPage);
  for (int g = 0; g < cache_.num_groups(); ++g) {
    if (!cache_.is_shared(g)) continue;
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
    const int32_t reach =
        cache_.is_shared(g) ? std::max(num_reserved_, num_cached_tokens_) : num_reserved_;
    if (static_cast<int32_t>(table.size()) * cache_.page_tokens() != reach) {
      return Error(ErrorCode::kInternal, "slot {}: table of group {} has {} pages", slot_.value, g,
                   table.size());
    }
    for (int32_t i = 0; i < static_cast<int32_t>(table.size()); ++i) {
      const PageId page = table[static_cast<size_t>(i)];
      const bool is_dropped = i < live_begin_[static_cast<size_t>(g)];
      const bool is_pinned = cache_.is_shared(g) && i < prefix_.num_pages();
      const PageId shared = is_pinned ? prefix_.page(g, i) : page;
      if (page != shared || (page == kNoPage) != is_dropped) {
        return Error(ErrorCode::kInternal, "slot {}: entry {} of group {} is {}, pinned is {}",
                     slot_.value, i, g, page.value, shared.value);
      }
    }
  }
  return OkStatus();
}

}  // namespace hayate::kv
