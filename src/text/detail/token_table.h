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
    const uint32_t hash = Hash(bytes);
    for (uint32_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id == kNoToken) return kNoToken;
      if (slot.hash == hash && slot.size == bytes.size() &&
          std::memcmp(slot.data, bytes.data(), bytes.size()) == 0) {
        return slot.id;
      }
    }
  }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t size = 0;
    uint32_t hash = 0;
    int32_t id = kNoToken;
  };

  static uint64_t Mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  // Reads 8 bytes at a time, the last 8 overlapping.
  static uint32_t Hash(std::string_view bytes) {
    constexpr uint64_t kPrime1 = 0x9E3779B97F4A7C15, kPrime2 = 0xD6E8FEB86659FD93;
    const char* p = bytes.data();
    const size_t n = bytes.size();
    uint64_t state = kPrime2 ^ n;
    uint64_t last = 0;
    if (n >= 8) {
      for (size_t i = 0; i + 8 < n; i += 8) {
        uint64_t word;
        std::memcpy(&word, p + i, 8);
        state = Mix(state ^ word, kPrime1);
      }
      std::memcpy(&last, p + n - 8, 8);
    } else if (n >= 4) {
      uint32_t low, high;
      std::memcpy(&low, p, 4);
      std::memcpy(&high, p + n - 4, 4);
      last = uint64_t{high} << 32 | low;
    } else if (n > 0) {
      const auto byte = [p](size_t i) { return uint64_t{static_cast<unsigned char>(p[i])}; };
      last = byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
    }
    return static_cast<uint32_t>(Mix(state ^ last, kPrime1));
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
