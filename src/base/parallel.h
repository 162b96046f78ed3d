#pragma once
// Loops over large arrays at start-up, on all cores.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/align.h"

namespace hayate {

// Calls body(begin, end) for consecutive pieces of [0, count), `piece` long but for the last, in
// any order and at once from several threads that end with the call; from this one alone where one
// piece is all.
template <typename Body>
void ParallelPieces(int64_t count, int64_t piece, Body body) {
  const int64_t num_pieces = CeilDiv(count, piece);
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < num_pieces; i = next++) {
      body(i * piece, std::min(count, (i + 1) * piece));
    }
  };
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  for (int64_t i = 1; i < std::min(cores, num_pieces); ++i) helpers.emplace_back(work);
  work();
}

}  // namespace hayate
