#pragma once
// Which rank of a replica computes what, as plain data: every rank derives the same from the same
// numbers. Eight heads, four ranks:
//
//   tensor parallel    rank                 0        1        2        3
//   (tp 4)             heads               0 1      2 3      4 5      6 7
//                      rows                all      all      all      all
//                      experts          each its own; the ranks' outputs are summed
//
//   DP attention       rank                 0        1        2        3
//   (tp 4, dp 2, ep 4) dp rank              └── 0 ───┘        └── 1 ───┘
//                      attention rank       0        1        0        1
//                      heads             0 … 3    4 … 7    0 … 3    4 … 7
//                      rows               slots 0, 2, 4 …    slots 1, 3, 5 …
//                      experts          each its own; rows travel to them and back
//
// The ranks of one dp rank are its attention group: they split heads, dense layers and vocabulary
// as tensor parallel ranks do, and hold equal rows after each sum. Where rows travel (ep > 1), the
// attention group splits its rows evenly, so that each is sent once.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace hayate::comm {

struct RankLayoutOptions {
  int num_ranks = 1;  // --tp-size
  int dp_size = 1;    // --dp-size with --enable-dp-attention
  int ep_size = 0;    // --ep-size: 1 or num_ranks; 0: num_ranks with DP attention, else 1
};

class RankLayout {
 public:
  // kInvalidArgument names the option that does not fit.
  static Result<RankLayout> Create(const RankLayoutOptions& options);
  RankLayout() = default;  // of one rank

  int num_ranks() const { return num_ranks_; }
  int dp_size() const { return dp_size_; }
  int attention_size() const { return num_ranks_ / dp_size_; }
  // Whether rows travel to the ranks of their experts; otherwise every rank routes all rows.
  bool exchanges() const { return exchanges_; }

  int dp_rank(int rank) const { return rank / attention_size(); }
  int attention_rank(int rank) const { return rank % attention_size(); }
  // The dp rank whose pools and tables hold a slot's sequence.
  int dp_rank_of_slot(int32_t slot) const { return slot % dp_size_; }

  // How many rows each rank brings to a layer whose rows travel, when the dp ranks have `counts`
  // [dp_size] rows. The first ranks of an attention group take the remainder.
  void SplitRows(std::span<const int32_t> counts, std::span<int32_t> per_rank) const;

 private:
  int num_ranks_ = 1;
  int dp_size_ = 1;
  bool exchanges_ = false;
};

inline constexpr int kMaxRanks = 1024;

}  // namespace hayate::comm
