#pragma once
// Which worker holds which prefix, as the gateway believes: a tree over hashes of text blocks. The
// node of block i is named by the hash of blocks 0…i, so a path needs no pointers and a shared
// prefix is stored once.
//
//   text  |64|64| … |64|128|128| …      blocks grow with their offset: a long prompt has few
//   hash   h0 h1      h31 h32           h(i) = H(h(i-1), block i)
//
// Each node lists the workers that hold it. A worker's entries form a list by last use; a path is
// touched from its end to its root, so the oldest entry is always a leaf of that worker and its
// holdings stay closed under prefix. Bounded by bytes, per worker by its own capacity, and by age:
// all enforced at insertion.
//
// Owner: whoever holds the router's lock. Time is an argument.

#include <cstdint>
#include <string_view>
#include <vector>

namespace hayate::gateway {

class PrefixTree {
 public:
  struct Options {
    size_t max_bytes = 64 << 20;
    int64_t max_age_ns = 3'600'000'000'000;
    size_t block_bytes = 64;          // of the first blocks
    size_t max_text_bytes = 1 << 20;  // what follows is not looked at
  };
  // Workers are slots: small numbers that the caller reuses after Forget().
  using Slot = uint16_t;
  static constexpr size_t kMaxSlots = 4096;

  explicit PrefixTree(const Options& options);

  // Hashes `text` once; Match and Insert take the result. `seed` keeps namespaces apart.
  struct Path {
    std::vector<uint64_t> hashes;
    std::vector<uint32_t> ends;  // bytes of text up to the end of that block
  };
  void MakePath(std::string_view text, uint64_t seed, Path& out) const;

  // How many bytes of the path each worker holds: matched[slot], for slots below matched.size().
  void Match(const Path& path, std::vector<uint32_t>& matched) const;

  // The worker holds the whole path from now on.
  void Insert(const Path& path, Slot slot, int64_t now_ns);

  // How many bytes of text that worker can keep; the oldest go. 0: no bound of its own.
  void SetCapacity(Slot slot, uint64_t text_bytes);
  // The worker lost everything, or is gone.
  void Forget(Slot slot);

  size_t num_entries() const { return num_entries_; }
  size_t bytes() const;
  uint64_t held_bytes(Slot slot) const {
    return slot < slots_.size() ? slots_[slot].held_bytes : 0;
  }
  // Recounts everything; for tests.
  void CheckIntegrity() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  // "Worker `slot` holds node `hash`."
  struct Entry {
    uint64_t hash;
    uint32_t block_bytes;
    uint32_t touched_s;
    uint32_t next_in_node;
    uint32_t older, newer;  // in the worker's list
    Slot slot;
  };
  // Open addressing, linear probing. head == kNone: free.
  struct Bucket {
    uint64_t hash = 0;
    uint32_t head = kNone;
  };
  struct Holdings {
    uint32_t oldest = kNone;
    uint32_t newest = kNone;
    uint64_t held_bytes = 0;
    uint64_t capacity = 0;
  };

  size_t FindBucket(uint64_t hash) const;  // its bucket, or the free one where it would go
  uint32_t FindEntry(uint64_t hash, Slot slot) const;
  void Grow();
  uint32_t NewEntry();
  void Touch(uint64_t hash, uint32_t block_bytes, Slot slot, uint32_t now_s);
  void Link(uint32_t index);
  void Unlink(uint32_t index);
  void Drop(uint32_t index);
  void EraseBucket(size_t bucket);
  void Trim(Slot slot, uint32_t now_s);
  void DropOldestOfAll();

  Options options_;
  std::vector<Bucket> buckets_;
  size_t num_nodes_ = 0;
  std::vector<Entry> entries_;
  uint32_t free_entry_ = kNone;  // chained by next_in_node
  size_t num_entries_ = 0;
  std::vector<Holdings> slots_;
};

}  // namespace hayate::gateway
