#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "ops/indexer/indexer.h"

namespace hayate::ops {
namespace {

double ScoreOf(const IndexerArgs& args, int32_t r, int32_t t, int32_t e) {
  std::vector<float> key(static_cast<size_t>(args.keys.width));
  const int32_t page = args.rows.PagesOf(r)[e / args.keys.page_rows];
  LoadLatentRow(args.keys, page, e % args.keys.page_rows, key.data());
  const int64_t heads = args.q.shape[1], width = args.q.shape[2];
  double score = 0.0;
  for (int64_t h = 0; h < heads; ++h) {
    double dot = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      dot += double{args.q.as<float>()[(t * heads + h) * width + i]} * key[static_cast<size_t>(i)];
    }
    score += std::max(dot, 0.0) * args.weights.as<float>()[t * heads + h] * args.weight_scale;
  }
  return score;
}

// The first `count` of (score, id) by falling score, then rising id; their ids ascending.
std::set<int32_t> Best(std::vector<std::pair<double, int32_t>> scored, int32_t count) {
  std::sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::set<int32_t> ids;
  for (const auto& [score, id] : scored) {
    if (static_cast<int32_t>(ids.size()) < count) ids.insert(id);
  }
  return ids;
}

}  // namespace

void SelectEntriesReference(const IndexerArgs& args) {
  const IndexCandidates& candidates = args.candidates;
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    for (int32_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      int32_t* blocks = candidates.blocks + int64_t{t} * candidates.max_blocks;
      std::vector<std::pair<double, int32_t>> entries, block_scores;
      const int32_t visible = (args.positions[t] + 1) / args.ratio;
      for (int32_t e = 0; e < visible; ++e) {
        const double score = ScoreOf(args, r, t, e);
        if (args.candidate_use == CandidateUse::kConsume) {
          int32_t* end = blocks + candidates.counts[t];
          if (std::find(blocks, end, e / candidates.block_size) == end) continue;
        }
        entries.emplace_back(score, e);
        if (args.candidate_use != CandidateUse::kProduce) continue;
        const int32_t block = e / candidates.block_size;
        if (block == static_cast<int32_t>(block_scores.size())) {
          block_scores.emplace_back(score, block);
        }
        double& best = block_scores.back().first;
        best = std::max(best, score);
        if (e + 1 == visible) best = INFINITY;
      }
      const std::set<int32_t> chosen = Best(entries, args.top_k);
      std::copy(chosen.begin(), chosen.end(), args.selected + int64_t{t} * args.top_k);
      args.counts[t] = static_cast<int32_t>(chosen.size());
      if (args.candidate_use != CandidateUse::kProduce) continue;
      const std::set<int32_t> kept = Best(block_scores, candidates.max_blocks);
      std::copy(kept.begin(), kept.end(), blocks);
      candidates.counts[t] = static_cast<int32_t>(kept.size());
    }
  }
}

}  // namespace hayate::ops
