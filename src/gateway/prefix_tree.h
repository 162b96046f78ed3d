#pragma once
// Which worker holds which prefix: a tree over the hashes of text/prompt_blocks.h. The node of
// block i is named by the hash of blocks 0…i, so a path needs no pointers and a shared prefix is
// stored once. Each node lists the workers that hold it.
//
// Most workers say nothing of their caches: then the tree is a guess from what was sent to them. A
// path is touched from its end to its root, so a worker's oldest entry is always a leaf and its
// holdings stay closed under prefix. Bounded by bytes, per worker by its own capacity, and by age,
// all enforced at insertion.
//
// A worker that tells (Tells, Hold, Drop) is believed: what it was sent counts beside that only
// until it has had the time to tell. The bytes bound what it tells too, its capacity and age do
// not.
//
// Owner: whoever holds the router's lock. Time is an argument.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/prompt_blocks.h"

namespace hayate::gateway {

class PrefixTree {
 public:
  struct Options {
    size_t max_bytes = 64 << 20;
    int64_t max_age_ns = 3'600'000'000'000;
    size_t block_bytes = text::kPromptBlockBytes;  // of the first blocks
    int64_t guess_ns = 30'000'000'000;             // how long a worker that tells may take to tell
  };
  // Workers are slots: small numbers that the caller reuses after Forget().
  using Slot = uint16_t;
  static constexpr size_t kMaxSlots = 4096;

  explicit PrefixTree(const Options& options);

  // Hashes `text` once; Match and Insert take the result. `seed` keeps namespaces apart.
  using Path = text::PromptBlocks;
  void MakePath(std::string_view text, uint64_t seed, Path& out) const;

  // How many bytes of the path each worker holds: matched[slot], for slots below matched.size().
  void Match(const Path& path, int64_t now_ns, std::vector<uint32_t>& matched) const;

  // The worker was sent that prompt: it should hold the whole path from now on.
  void Insert(const Path& path, Slot slot, int64_t now_ns);

  // The worker tells its whole cache anew, by the Holds that follow.
  void Tells(Slot slot);
  bool tells(Slot slot) const { return slot < slots_.size() && slots_[slot].tells; }
  // It holds that block, or no longer. Of a worker that tells.
  void Hold(uint64_t hash, Slot slot, int64_t now_ns);
  void Drop(uint64_t hash, Slot slot);

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
    uint32_t block_bytes;  // 0: unknown, the worker told of it first
    uint32_t touched_s;
    uint32_t next_in_node;
    uint32_t older, newer;  // in one of the worker's lists
    Slot slot;
    bool told;  // by the worker; else a guess
  };
  // Open addressing, linear probing. head == kNone: free.
  struct Bucket {
    uint64_t hash = 0;
    uint32_t head = kNone;
  };
  struct List {  // by last use
    uint32_t oldest = kNone;
    uint32_t newest = kNone;
  };
  struct Holdings {
    List guessed;
    List told;
    uint64_t held_bytes = 0;
    uint64_t capacity = 0;
    bool tells = false;
  };

  size_t FindBucket(uint64_t hash) const;  // its bucket, or the free one where it would go
  uint32_t FindEntry(uint64_t hash, Slot slot) const;
  void Grow();
  Holdings& HoldingsOf(Slot slot);
  List& ListOf(const Entry& entry);
  // Whether a guess about a worker that tells has outlived its time.
  bool IsStale(const Entry& entry, uint32_t now_s) const;
  uint32_t Touch(uint64_t hash, uint32_t block_bytes, Slot slot, uint32_t now_s);
  uint32_t NewEntry();
  void Link(uint32_t index);
  void Unlink(uint32_t index);
  void DropEntry(uint32_t index);
  void DropList(List Holdings::*list, Slot slot);
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
