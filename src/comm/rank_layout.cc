#include "comm/rank_layout.h"

#include "base/check.h"
#include "base/error.h"

namespace hayate::comm {

Result<RankLayout> RankLayout::Create(const RankLayoutOptions& options) {
  const auto [ranks, dp, ep] = options;
  if (ranks < 1 || ranks > kMaxRanks) {
    return Error(ErrorCode::kInvalidArgument, "--tp-size {} is not in 1 to {}", ranks, kMaxRanks);
  }
  if (dp < 1 || ranks % dp != 0) {
    return Error(ErrorCode::kInvalidArgument, "--dp-size {} does not divide --tp-size {}", dp,
                 ranks);
  }
  if (ep != 0 && ep != 1 && ep != ranks) {
    return Error(ErrorCode::kInvalidArgument,
                 "--ep-size {}: experts are whole and lie on all ranks; use 1 or {} (--tp-size)",
                 ep, ranks);
  }
  if (dp > 1 && ep == 1) {
    return Error(ErrorCode::kInvalidArgument,
                 "--dp-size {}: with DP attention rows travel to their experts; --ep-size must be "
                 "{}",
                 dp, ranks);
  }
  RankLayout layout;
  layout.num_ranks_ = ranks;
  layout.dp_size_ = dp;
  layout.exchanges_ = ranks > 1 && (dp > 1 || ep > 1);
  return layout;
}

void RankLayout::SplitRows(std::span<const int32_t> counts, std::span<int32_t> per_rank) const {
  CHECK_EQ(counts.size(), static_cast<size_t>(dp_size_));
  CHECK_EQ(per_rank.size(), static_cast<size_t>(num_ranks_));
  const int32_t size = attention_size();
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const int32_t count = counts[static_cast<size_t>(dp_rank(rank))];
    per_rank[static_cast<size_t>(rank)] = count / size + (attention_rank(rank) < count % size);
  }
}

}  // namespace hayate::comm
