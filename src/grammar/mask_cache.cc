#include "grammar/mask_cache.h"

#include <utility>

namespace hayate::grammar {

int32_t MaskCache::IdOf(const std::shared_ptr<const CompiledGrammar>& grammar) {
  constexpr size_t kSweepAt = 4096;
  if (grammars_.size() >= kSweepAt) {
    std::erase_if(grammars_, [](const auto& entry) { return entry.second.grammar.expired(); });
  }
  Known& known = grammars_[grammar.get()];
  if (known.grammar.expired()) known = {grammar, ++last_id_};
  return known.id;
}

const MaskCache::Mask* MaskCache::Find(std::span<const int32_t> key) {
  const auto it = by_key_.find(BytesOf(key));
  ++(it == by_key_.end() ? stats_.misses : stats_.hits);
  if (it == by_key_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, it->second);
  return &it->second->mask;
}

void MaskCache::Put(std::span<const int32_t> key, MaskKind kind, std::span<const uint32_t> bits) {
  if (by_key_.contains(BytesOf(key))) return;
  entries_.push_back({std::string(BytesOf(key)), {kind, {bits.begin(), bits.end()}}});
  by_key_[entries_.back().key] = std::prev(entries_.end());
  stats_.bytes += BytesOf(entries_.back());
  while (stats_.bytes > max_bytes_) {
    stats_.bytes -= BytesOf(entries_.front());
    by_key_.erase(entries_.front().key);
    entries_.pop_front();
  }
}

std::string_view MaskCache::BytesOf(std::span<const int32_t> key) {
  return {reinterpret_cast<const char*>(key.data()), key.size_bytes()};
}

size_t MaskCache::BytesOf(const Entry& entry) {
  constexpr size_t kOverhead = 192;  // of the list, the map and the allocator, about
  return entry.key.size() + entry.mask.bits.size() * sizeof(uint32_t) + kOverhead;
}

}  // namespace hayate::grammar
