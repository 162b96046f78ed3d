#include "bench/rank_shapes.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace hayate::bench {
namespace {

constexpr double kLatentRow = 584;  // bytes of a packed latent row
constexpr double kIndexRow = 132;   // bytes of a packed index key
constexpr double kWindow = 128, kTopEntries = 512;

// 43 layers: 2 with a window alone, 21 that pick 512 of the entries of 4 tokens by an indexer, 20
// that read all entries of 128 tokens.
RankModel V4Flash() {
  constexpr double kHidden = 4096, kQRank = 1024, kHeads = 64 * 512;
  const double attention = kHidden * kQRank + kQRank * kHeads + kHidden * 512 + kHeads * 1024 +
                           8 * 1024 * kHidden + kQRank * 64 * 128;
  return {.name = "v4-flash",
          .num_layers = 43,
          .hidden_size = 4096,
          .num_experts = 256,
          .top_k = 6,
          .expert_size = 2048,
          .expert_bytes = 13.37e6,
          .dense_params = attention + 3 * kHidden * 2048,
          .fixed_bytes = 2 * kHidden * 129280,
          .cache_bytes = (43 * kWindow + 21 * kTopEntries) * kLatentRow,
          .cache_bytes_per_token = 21 * kIndexRow / 4 + 20 * kLatentRow / 128};
}

// 40 layers: 2 with a window alone, 38 that read 512 entries. 8 of these pick them: 3 among entries
// of 2 tokens, 1 among all tokens, 4 among the 2,048 blocks of 8 tokens that the one before marked.
RankModel V41Flash() {
  constexpr double kHidden = 5120, kQRank = 1280, kHeads = 64 * 512;
  const double attention =
      kHidden * kQRank + kQRank * kHeads + kHidden * 512 + kHeads * 1024 + 8 * 1024 * kHidden;
  return {.name = "v4.1-flash",
          .num_layers = 40,
          .hidden_size = 5120,
          .num_experts = 384,
          .top_k = 6,
          .expert_size = 2304,
          .expert_bytes = 18'800'640,
          .dense_params = attention + 3 * kHidden * 2304,
          .fixed_bytes = 2 * kHidden * 129280,
          .cache_bytes = (40 * kWindow + 38 * kTopEntries) * kLatentRow + 4 * 2048 * 8 * kIndexRow,
          .cache_bytes_per_token = (3.0 / 2 + 1) * kIndexRow};
}

}  // namespace

double RankRates::ExpertUs(int32_t rows) const {
  CHECK(!expert_costs.empty());
  if (rows == 0) return 0;
  const ExpertCost& first = expert_costs.front();
  if (rows <= first.rows || expert_costs.size() == 1) return first.us;
  auto high = std::ranges::lower_bound(expert_costs, rows, {}, &ExpertCost::rows);
  if (high == expert_costs.end()) --high;
  const ExpertCost& low = *(high - 1);
  return low.us + (high->us - low.us) * (rows - low.rows) / (high->rows - low.rows);
}

Result<RankModel> FindRankModel(std::string_view name) {
  if (name == "v4-flash") return V4Flash();
  if (name == "v4.1-flash") return V41Flash();
  return Error(ErrorCode::kInvalidArgument, "--shape '{}' is unknown; use v4-flash or v4.1-flash",
               name);
}

}  // namespace hayate::bench
