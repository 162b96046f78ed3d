#include "kv/prefix_names.h"

#include <cstddef>
#include <utility>

namespace hayate::kv {

void PrefixNames::Add(int32_t node, uint64_t hash) {
  const auto at = static_cast<size_t>(node);
  if (at >= first_.size()) first_.resize(at + 1, kNone);
  int count = 0;
  for (int32_t i = first_[at]; i != kNone; i = entries_[static_cast<size_t>(i)].next) {
    if (entries_[static_cast<size_t>(i)].hash == hash || ++count == kMaxKeysPerNode) return;
  }
  int32_t index = free_;
  if (index == kNone) {
    index = static_cast<int32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    free_ = entries_[static_cast<size_t>(index)].next;
  }
  entries_[static_cast<size_t>(index)] = {hash, std::exchange(first_[at], index)};
  changes_.push_back({hash, true});
}

void PrefixNames::Remove(int32_t node) {
  const auto at = static_cast<size_t>(node);
  if (at >= first_.size()) return;
  for (int32_t i = std::exchange(first_[at], kNone); i != kNone;) {
    Entry& entry = entries_[static_cast<size_t>(i)];
    changes_.push_back({entry.hash, false});
    const int32_t next = std::exchange(entry.next, std::exchange(free_, i));
    i = next;
  }
}

void PrefixNames::TakeChanges(std::vector<PrefixKeyChange>& out) {
  out.insert(out.end(), changes_.begin(), changes_.end());
  changes_.clear();
}

}  // namespace hayate::kv
