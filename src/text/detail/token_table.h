#pragma once
// Two flat hash tables of the encoder's inner loop, open-addressed with linear probing and at most
// half full. Built once, then read by all threads.

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace hayate::text {

inline constexpr int32_t kNoToken = -1;

// Token bytes → id.
class TokenTable {
 public:
  // `num_tokens` is an upper bound of the Insert calls that follow.
  explicit TokenTable(size_t num_tokens);

  // Keeps the first id of equal bytes. `bytes` must outlive the table.
  void Insert(std::string_view bytes, int32_t id);

  int32_t Find(std::string_view bytes) const {
    const uint64_t head = Head(bytes);
    for (uint32_t i = Start(bytes, head);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id == kNoToken || slot.Holds(bytes, head)) return slot.id;
    }
  }

 private:
  // Tokens of up to 8 bytes, nearly all that prose meets, are compared by `head` and `size` alone.
  struct Slot {
    uint64_t head = 0;
    const char* data = nullptr;
    uint32_t size = 0;
    int32_t id = kNoToken;

    bool Holds(std::string_view bytes, uint64_t bytes_head) const {
      return head == bytes_head && size == bytes.size() &&
             (size <= 8 || std::memcmp(data + 8, bytes.data() + 8, size - 8) == 0);
    }
  };

  // The first 8 bytes, or a number that tells all shorter strings of one length apart.
  static uint64_t Head(std::string_view bytes) {
    const char* p = bytes.data();
    const size_t n = bytes.size();
    const auto byte = [p](size_t i) { return uint64_t{static_cast<unsigned char>(p[i])}; };
    if (n >= 8) return Load<uint64_t>(p);
    if (n >= 4) return uint64_t{Load<uint32_t>(p + n - 4)} << 32 | Load<uint32_t>(p);
    if (n == 0) return 0;
    return byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
  }

  uint32_t Start(std::string_view bytes, uint64_t head) const {
    constexpr uint64_t kPrime1 = 0x9E3779B97F4A7C15, kPrime2 = 0xD6E8FEB86659FD93;
    const size_t n = bytes.size();
    uint64_t state = Mix(head ^ n * kPrime2, kPrime1);
    for (size_t i = 8; i + 8 < n; i += 8) {
      state = Mix(state ^ Load<uint64_t>(bytes.data() + i), kPrime1);
    }
    if (n > 8) state = Mix(state ^ Load<uint64_t>(bytes.data() + n - 8), kPrime1);
    return static_cast<uint32_t>(state) & mask_;
  }

  template <typename T>
  static T Load(const char* p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  }

  static uint64_t Mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  std::vector<Slot> slots_;
  uint32_t mask_;
};

// (left, right) → merge.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = INT32_MAX;  // INT32_MAX: these two do not merge
    int32_t result = kNoToken;
  };

  // A later rule for the same pair replaces an earlier one.
  explicit MergeTable(const std::vector<MergeRule>& rules);

  Merge Find(int32_t left, int32_t right) const {
    for (uint32_t i = Start(left, right);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if ((slot.left == left && slot.right == right) || slot.left == kNoToken) return slot.merge;
    }
  }

 private:
  struct Slot {
    int32_t left = kNoToken;
    int32_t right = kNoToken;
    Merge merge;
  };

  uint32_t Start(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return static_cast<uint32_t>(key * 0x9E3779B97F4A7C15 >> 32) & mask_;
  }

  std::vector<Slot> slots_;
  uint32_t mask_;
};

}  // namespace hayate::text
