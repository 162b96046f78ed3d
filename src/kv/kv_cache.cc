#include "kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"

namespace hayate::kv {
namespace {

Status Validate(const KvCacheOptions& options) {
  const CacheLayout& layout = options.layout;
  if (layout.page_tokens < 1) {
    return InvalidField("page_tokens", "{} is not positive", layout.page_tokens);
  }
  if (layout.groups.empty() || layout.groups.size() > size_t{kMaxGroups}) {
    return InvalidField("groups", "{} cache groups, must be 1 to {}", layout.groups.size(),
                        kMaxGroups);
  }
  if (options.num_pages.size() != layout.groups.size()) {
    return InvalidField("num_pages", "{} page counts for {} cache groups", options.num_pages.size(),
                        layout.groups.size());
  }
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const CacheGroup& group = layout.groups[g];
    if (options.num_pages[g] < 2) {
      return InvalidField("num_pages", "group {} has {} pages, needs 2 or more (one is scratch)",
                          group.name, options.num_pages[g]);
    }
    if (group.kind == CacheKind::kWindow && group.window < 1) {
      return InvalidField("window", "{} in group {} is not positive", group.window, group.name);
    }
    // A replay begins before what a window that is kept still has.
    const bool must_replay = layout.replay_tokens > 0 && group.kind == CacheKind::kWindow;
    if (group.replayed != must_replay || (group.replayed && layout.replay_tokens < group.window)) {
      return InvalidField("replay_tokens", "{} do not fit group {} with its window of {}",
                          layout.replay_tokens, group.name, group.window);
    }
    if (group.kind == CacheKind::kCompressed &&
        (group.ratio < 1 || layout.page_tokens % group.ratio != 0)) {
      return InvalidField("ratio", "{} in group {} does not divide a page of {} tokens",
                          group.ratio, group.name, layout.page_tokens);
    }
  }
  return OkStatus();
}

// What may be reused of a prompt: at least one token is left to compute.
std::span<const TokenId> Reusable(std::span<const TokenId> tokens, int32_t max_tokens) {
  const size_t limit = std::min(tokens.size(), static_cast<size_t>(std::max(0, max_tokens)));
  return tokens.first(limit == tokens.size() && limit > 0 ? limit - 1 : limit);
}

}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::Create(KvCacheOptions options) {
  RETURN_IF_ERROR(Validate(options));
  return std::unique_ptr<KvCache>(new KvCache(std::move(options)));
}

KvCache::KvCache(KvCacheOptions options)
    : layout_(std::move(options.layout)),
      reuse_(options.reuse),
      keeps_names_(options.keeps_names && options.reuse == PrefixReuse::kOn),
      pools_(options.num_pages.begin(), options.num_pages.end()),
      tree_(layout_, pools_),
      num_deferred_pages_(layout_.groups.size(), 0) {
  if (keeps_names_) tree_.KeepNames(&names_);
}

KvCache::~KvCache() {
  CHECK(sequences_.empty()) << sequences_.size() << " sequences outlive the cache";
  for (const Deferred& deferred : deferred_) Settle(deferred);
}

PrefixHandle KvCache::Match(std::string_view name_space, std::span<const TokenId> tokens,
                            int32_t max_tokens) {
  return tree_.Match(name_space, publishes() ? Reusable(tokens, max_tokens) : tokens.first(0));
}

int32_t KvCache::MatchLength(std::string_view name_space, std::span<const TokenId> tokens,
                             int32_t max_tokens) const {
  return publishes() ? tree_.MatchLength(name_space, Reusable(tokens, max_tokens)) : 0;
}

std::unique_ptr<SequenceCache> KvCache::Begin(SlotId slot, PrefixHandle prefix,
                                              int32_t num_prompt_tokens) {
  ++stats_.lookups;
  stats_.lookup_tokens += static_cast<uint64_t>(num_prompt_tokens);
  stats_.hit_tokens += static_cast<uint64_t>(prefix.num_tokens());
  std::unique_ptr<SequenceCache> sequence(new SequenceCache(*this, slot, std::move(prefix)));
  sequence->registry_index_ = sequences_.size();
  sequences_.push_back(sequence.get());
  return sequence;
}

void KvCache::End(SequenceCache& sequence) {
  scratch_pins_.clear();
  tree_.TakeAllPins(sequence.prefix_, scratch_pins_);
  for (const Pin& pin : scratch_pins_) Defer({.page = kNoPage, .pin = pin});
  sequences_.back()->registry_index_ = sequence.registry_index_;
  sequences_[sequence.registry_index_] = sequences_.back();
  sequences_.pop_back();
}

void KvCache::EvictUntilFree(int group, int32_t num_pages) {
  const int32_t num_free = pools_[static_cast<size_t>(group)].num_free();
  if (num_free < num_pages) tree_.Evict(group, num_pages - num_free);
}

PageId KvCache::Allocate(int group) {
  const std::optional<PageId> page = pools_[static_cast<size_t>(group)].Allocate();
  CHECK(page.has_value()) << "group " << group;
  return *page;
}

void KvCache::FreeLater(int group, PageId page) { Defer({.page = page, .pin = {.group = group}}); }

void KvCache::UnpinLater(PrefixHandle& prefix, int group, int32_t new_begin) {
  scratch_pins_.clear();
  tree_.TakePins(prefix, group, new_begin, scratch_pins_);
  for (const Pin& pin : scratch_pins_) Defer({.page = kNoPage, .pin = pin});
}

void KvCache::Defer(Deferred deferred) {
  if (submitted_end_ <= retired_end_) {
    Settle(deferred);
    return;
  }
  if (deferred.page != kNoPage) ++num_deferred_pages_[static_cast<size_t>(deferred.pin.group)];
  deferred.after_step = submitted_end_ - 1;
  deferred_.push_back(deferred);
}

void KvCache::Settle(const Deferred& deferred) {
  if (deferred.page != kNoPage) {
    pools_[static_cast<size_t>(deferred.pin.group)].Free(deferred.page);
  } else {
    tree_.Unpin(deferred.pin);
  }
}

void KvCache::Flush() { tree_.EvictAll(); }

void KvCache::StepSubmitted(uint64_t step) {
  CHECK_GE(step, submitted_end_);
  submitted_end_ = step + 1;
}

void KvCache::StepRetired(uint64_t step) {
  CHECK(retired_end_ <= step && step < submitted_end_) << step;
  retired_end_ = step + 1;
  auto next = deferred_.begin();
  for (; next != deferred_.end() && next->after_step <= step; ++next) {
    if (next->page != kNoPage) --num_deferred_pages_[static_cast<size_t>(next->pin.group)];
    Settle(*next);
  }
  deferred_.erase(deferred_.begin(), next);
}

int32_t KvCache::num_available(int group) const {
  return pools_[static_cast<size_t>(group)].num_free() + tree_.num_evictable(group);
}

int32_t KvCache::PeakPages(int group, int32_t num_tokens, int32_t max_row_tokens) const {
  if (kind(group) == CacheKind::kState) return 1;
  const int64_t page = layout_.page_tokens;
  const int64_t whole = CeilDiv<int64_t>(num_tokens, page);
  if (kind(group) != CacheKind::kWindow) return static_cast<int32_t>(whole);
  // A row and the window before its first token, however they lie on the pages.
  const int64_t span =
      int64_t{layout_.groups[static_cast<size_t>(group)].window} - 1 + max_row_tokens;
  return static_cast<int32_t>(std::min(whole, CeilDiv<int64_t>(span - 1, page) + 1));
}

PageCounts KvCache::counts(int group) const {
  const auto g = static_cast<size_t>(group);
  PageCounts counts = {.usable = pools_[g].num_usable(),
                       .free = pools_[g].num_free(),
                       .deferred = num_deferred_pages_[g],
                       .tree = tree_.num_pages(group),
                       .evictable = tree_.num_evictable(group)};
  counts.sequences = counts.usable - counts.free - counts.deferred - counts.tree;
  return counts;
}

KvCacheStats KvCache::stats() const {
  KvCacheStats stats = stats_;
  for (int g = 0; g < num_groups(); ++g)
    stats.evicted_pages[static_cast<size_t>(g)] = tree_.num_evicted(g);
  return stats;
}

Status KvCache::CheckIntegrity() const {
  std::vector<std::vector<int32_t>> seen;  // [group][page]: places where the page is
  for (const PagePool& pool : pools_) {
    std::vector<int32_t>& counts = seen.emplace_back(static_cast<size_t>(pool.num_usable() + 1), 0);
    for (int32_t page = 1; page <= pool.num_usable(); ++page) {
      counts[static_cast<size_t>(page)] = pool.IsFree({page}) ? 1 : 0;
    }
  }
  std::vector<Pin> pins;
  for (const Deferred& deferred : deferred_) {
    if (deferred.page == kNoPage) {
      pins.push_back(deferred.pin);
    } else {
      ++seen[static_cast<size_t>(deferred.pin.group)][static_cast<size_t>(deferred.page.value)];
    }
  }
  for (const SequenceCache* sequence : sequences_) {
    RETURN_IF_ERROR(sequence->CheckTables(seen));
    tree_.CollectPins(sequence->prefix_, pins);
  }
  RETURN_IF_ERROR(tree_.CheckIntegrity(pins, seen));
  for (size_t g = 0; g < seen.size(); ++g) {
    for (size_t page = 0; page < seen[g].size(); ++page) {
      if (seen[g][page] != (page == 0 ? 0 : 1)) {
        return Error(ErrorCode::kInternal, "page {} of group {} is in {} places", page,
                     layout_.groups[g].name, seen[g][page]);
      }
    }
  }
  return OkStatus();
}

}  // namespace hayate::kv
