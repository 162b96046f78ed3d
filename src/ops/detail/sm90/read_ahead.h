#pragma once
// Reads of a later launch, asked for by one whose own reads are all under way: between two launches
// that stream from memory lie the end of the first, the row-wise launches between them and the
// start of the second, and memory would wait for as long. What was asked for comes from the
// second-level cache then.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hayate::ops::sm90 {

// What memory moves in the about 8 µs of such a gap; the cache keeps it beside everything else.
inline constexpr size_t kReadAheadBytes = size_t{32} << 20;

// A kernel's parameter. 16-byte aligned.
struct ReadAhead {
  const std::byte* data;
  uint32_t bytes;
};

// Between launches over so many tokens products still take as long as their weights.
inline constexpr int64_t kMostReadAheadRows = 512;

inline ReadAhead ReadAheadOf(std::span<const std::byte> memory) {
  return {memory.data(), static_cast<uint32_t>(std::min(memory.size(), kReadAheadBytes) / 16 * 16)};
}
// For a launch over rows of tokens that reads little. With few of them the products around it ask.
inline ReadAhead ReadAheadOf(std::span<const std::byte> memory, int64_t rows) {
  constexpr int64_t kFewest = 17;
  return rows >= kFewest && rows <= kMostReadAheadRows ? ReadAheadOf(memory) : ReadAhead{};
}

}  // namespace hayate::ops::sm90
