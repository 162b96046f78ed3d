#include "gateway/prefix_tree.h"

#include <algorithm>

#include "base/check.h"

namespace hayate::gateway {
namespace {

constexpr size_t kFirstBuckets = 1024;

uint32_t Seconds(int64_t now_ns) { return static_cast<uint32_t>(now_ns / 1'000'000'000); }

}  // namespace

PrefixTree::PrefixTree(const Options& options) : options_(options), buckets_(kFirstBuckets) {
  options_.block_bytes = std::max<size_t>(options_.block_bytes, 8);
}

void PrefixTree::MakePath(std::string_view text, uint64_t seed, Path& out) const {
  text::HashPrompt(text, seed, options_.block_bytes, out);
}

size_t PrefixTree::FindBucket(uint64_t hash) const {
  const size_t mask = buckets_.size() - 1;
  size_t at = static_cast<size_t>(hash) & mask;
  while (buckets_[at].head != kNone && buckets_[at].hash != hash) at = (at + 1) & mask;
  return at;
}

uint32_t PrefixTree::FindEntry(uint64_t hash, Slot slot) const {
  uint32_t index = buckets_[FindBucket(hash)].head;
  while (index != kNone && entries_[index].slot != slot) index = entries_[index].next_in_node;
  return index;
}

bool PrefixTree::IsStale(const Entry& entry, uint32_t now_s) const {
  return !entry.told && slots_[entry.slot].tells &&
         now_s > entry.touched_s + uint64_t{Seconds(options_.guess_ns)};
}

void PrefixTree::Match(const Path& path, int64_t now_ns, std::vector<uint32_t>& matched) const {
  matched.assign(slots_.size(), 0);
  const uint32_t now_s = Seconds(now_ns);
  uint32_t before = 0;
  for (size_t i = 0; i < path.hashes.size(); ++i) {
    uint32_t index = buckets_[FindBucket(path.hashes[i])].head;
    if (index == kNone) return;
    for (; index != kNone; index = entries_[index].next_in_node) {
      uint32_t& depth = matched[entries_[index].slot];
      if (depth == before && !IsStale(entries_[index], now_s)) depth = path.ends[i];
    }
    before = path.ends[i];
  }
}

PrefixTree::Holdings& PrefixTree::HoldingsOf(Slot slot) {
  CHECK_LT(size_t{slot}, kMaxSlots);
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  return slots_[slot];
}

void PrefixTree::Insert(const Path& path, Slot slot, int64_t now_ns) {
  HoldingsOf(slot);
  const uint32_t now_s = Seconds(now_ns);
  // From the end to the root: the root is the newest, so leaves go first.
  for (size_t i = path.hashes.size(); i-- > 0;) {
    const uint32_t begin = i == 0 ? 0 : path.ends[i - 1];
    Touch(path.hashes[i], path.ends[i] - begin, slot, now_s);
  }
  Trim(slot, now_s);
  while (bytes() > options_.max_bytes && num_entries_ > 0) DropOldestOfAll();
}

void PrefixTree::Tells(Slot slot) {
  HoldingsOf(slot).tells = true;
  DropList(&Holdings::told, slot);
}

void PrefixTree::Hold(uint64_t hash, Slot slot, int64_t now_ns) {
  const uint32_t index = Touch(hash, 0, slot, Seconds(now_ns));
  if (!entries_[index].told) {
    Unlink(index);
    entries_[index].told = true;
    Link(index);
  }
  while (bytes() > options_.max_bytes && num_entries_ > 0) DropOldestOfAll();
}

void PrefixTree::Drop(uint64_t hash, Slot slot) {
  if (const uint32_t index = FindEntry(hash, slot); index != kNone) DropEntry(index);
}

// The entry, now its worker's newest.
uint32_t PrefixTree::Touch(uint64_t hash, uint32_t block_bytes, Slot slot, uint32_t now_s) {
  uint32_t index = FindEntry(hash, slot);
  if (index != kNone) {
    Unlink(index);
    entries_[index].touched_s = now_s;
    Link(index);
    return index;
  }
  if ((num_nodes_ + 1) * 4 > buckets_.size() * 3) Grow();
  index = NewEntry();
  Bucket& bucket = buckets_[FindBucket(hash)];
  if (bucket.head == kNone) {
    bucket.hash = hash;
    ++num_nodes_;
  }
  entries_[index] = {.hash = hash,
                     .block_bytes = block_bytes,
                     .touched_s = now_s,
                     .next_in_node = bucket.head,
                     .older = kNone,
                     .newer = kNone,
                     .slot = slot,
                     .told = false};
  bucket.head = index;
  slots_[slot].held_bytes += block_bytes;
  Link(index);
  return index;
}

uint32_t PrefixTree::NewEntry() {
  ++num_entries_;
  if (free_entry_ == kNone) {
    entries_.emplace_back();
    return static_cast<uint32_t>(entries_.size() - 1);
  }
  const uint32_t index = free_entry_;
  free_entry_ = entries_[index].next_in_node;
  return index;
}

PrefixTree::List& PrefixTree::ListOf(const Entry& entry) {
  Holdings& holdings = slots_[entry.slot];
  return entry.told ? holdings.told : holdings.guessed;
}

void PrefixTree::Link(uint32_t index) {
  List& list = ListOf(entries_[index]);
  entries_[index].older = list.newest;
  entries_[index].newer = kNone;
  if (list.newest != kNone) entries_[list.newest].newer = index;
  list.newest = index;
  if (list.oldest == kNone) list.oldest = index;
}

void PrefixTree::Unlink(uint32_t index) {
  const Entry& entry = entries_[index];
  List& list = ListOf(entry);
  (entry.older == kNone ? list.oldest : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? list.newest : entries_[entry.newer].older) = entry.older;
}

void PrefixTree::DropEntry(uint32_t index) {
  Unlink(index);
  const Entry& entry = entries_[index];
  slots_[entry.slot].held_bytes -= entry.block_bytes;
  const size_t bucket = FindBucket(entry.hash);
  uint32_t* link = &buckets_[bucket].head;
  while (*link != index) link = &entries_[*link].next_in_node;
  *link = entry.next_in_node;
  if (buckets_[bucket].head == kNone) EraseBucket(bucket);
  entries_[index].next_in_node = free_entry_;
  free_entry_ = index;
  --num_entries_;
}

// Closes the gap, so that probing never needs tombstones.
void PrefixTree::EraseBucket(size_t bucket) {
  --num_nodes_;
  const size_t mask = buckets_.size() - 1;
  size_t gap = bucket;
  for (size_t at = (gap + 1) & mask; buckets_[at].head != kNone; at = (at + 1) & mask) {
    const size_t home = static_cast<size_t>(buckets_[at].hash) & mask;
    if (((at - home) & mask) < ((at - gap) & mask)) continue;  // it would land before its home
    buckets_[gap] = buckets_[at];
    gap = at;
  }
  buckets_[gap] = Bucket{};
}

void PrefixTree::Grow() {
  std::vector<Bucket> old(buckets_.size() * 2);
  old.swap(buckets_);
  for (const Bucket& bucket : old) {
    if (bucket.head != kNone) buckets_[FindBucket(bucket.hash)] = bucket;
  }
}

void PrefixTree::Trim(Slot slot, uint32_t now_s) {
  const Holdings& holdings = slots_[slot];
  const uint32_t max_age_s = Seconds(options_.max_age_ns);
  while (holdings.guessed.oldest != kNone) {
    const Entry& oldest = entries_[holdings.guessed.oldest];
    const bool over =
        !holdings.tells && holdings.capacity > 0 && holdings.held_bytes > holdings.capacity;
    const bool old = now_s > oldest.touched_s + uint64_t{max_age_s} || IsStale(oldest, now_s);
    if (!over && !old) return;
    DropEntry(holdings.guessed.oldest);
  }
}

void PrefixTree::DropOldestOfAll() {
  uint32_t oldest = kNone;
  for (const Holdings& holdings : slots_) {
    for (const uint32_t index : {holdings.guessed.oldest, holdings.told.oldest}) {
      if (index == kNone) continue;
      if (oldest == kNone || entries_[index].touched_s < entries_[oldest].touched_s) oldest = index;
    }
  }
  DropEntry(oldest);
}

void PrefixTree::DropList(List Holdings::*list, Slot slot) {
  while ((slots_[slot].*list).oldest != kNone) DropEntry((slots_[slot].*list).oldest);
}

void PrefixTree::SetCapacity(Slot slot, uint64_t text_bytes) {
  HoldingsOf(slot).capacity = text_bytes;
}

void PrefixTree::Forget(Slot slot) {
  if (slot >= slots_.size()) return;
  DropList(&Holdings::guessed, slot);
  DropList(&Holdings::told, slot);
  slots_[slot] = Holdings{};
}

size_t PrefixTree::bytes() const {
  // Live entries and their share of the table: a table three quarters full holds them.
  return num_entries_ * sizeof(Entry) + num_nodes_ * sizeof(Bucket) * 4 / 3;
}

void PrefixTree::CheckIntegrity() const {
  size_t listed = 0;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    uint64_t held = 0;
    for (const bool told : {false, true}) {
      const List& list = told ? slots_[slot].told : slots_[slot].guessed;
      uint32_t before = kNone;
      for (uint32_t i = list.oldest; i != kNone; i = entries_[i].newer) {
        CHECK_EQ(size_t{entries_[i].slot}, slot);
        CHECK_EQ(entries_[i].told, told);
        CHECK_EQ(entries_[i].older, before);
        CHECK_EQ(FindEntry(entries_[i].hash, entries_[i].slot), i);
        held += entries_[i].block_bytes;
        before = i;
        ++listed;
      }
      CHECK_EQ(list.newest, before);
    }
    CHECK_EQ(slots_[slot].held_bytes, held);
  }
  CHECK_EQ(listed, num_entries_);
  size_t nodes = 0;
  for (const Bucket& bucket : buckets_) nodes += bucket.head != kNone ? 1 : 0;
  CHECK_EQ(nodes, num_nodes_);
}

}  // namespace hayate::gateway
