#pragma once
// A least-recently-used order over small integers: a doubly linked list in two arrays.

#include <cstdint>
#include <memory>

#include "base/check.h"

namespace hayate::kv {

class LruList {
 public:
  static constexpr int32_t kNone = -1;

  // Ids are in [0, capacity). Each must be initialised by Track before it is used: memory that was
  // never touched is never committed.
  explicit LruList(int32_t capacity)
      : links_(std::make_unique_for_overwrite<Links[]>(static_cast<size_t>(capacity))) {}

  void Track(int32_t id) { links(id) = {kAbsent, kAbsent}; }
  bool Contains(int32_t id) const { return links_[static_cast<size_t>(id)].older != kAbsent; }
  int32_t size() const { return size_; }
  int32_t oldest() const { return oldest_; }
  // The next more recently used one, or kNone.
  int32_t newer(int32_t id) const { return links_[static_cast<size_t>(id)].newer; }

  void PushNewest(int32_t id) {
    DCHECK(!Contains(id)) << id;
    links(id) = {newest_, kNone};
    (newest_ == kNone ? oldest_ : links(newest_).newer) = id;
    newest_ = id;
    ++size_;
  }
  void Remove(int32_t id) {
    DCHECK(Contains(id)) << id;
    const Links gone = links(id);
    (gone.older == kNone ? oldest_ : links(gone.older).newer) = gone.newer;
    (gone.newer == kNone ? newest_ : links(gone.newer).older) = gone.older;
    links(id) = {kAbsent, kAbsent};
    --size_;
  }

 private:
  static constexpr int32_t kAbsent = -2;
  struct Links {
    int32_t older;
    int32_t newer;
  };
  Links& links(int32_t id) { return links_[static_cast<size_t>(id)]; }

  std::unique_ptr<Links[]> links_;
  int32_t oldest_ = kNone;
  int32_t newest_ = kNone;
  int32_t size_ = 0;
};

}  // namespace hayate::kv
