#include "ops/indexer/indexer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "ops/detail/lanes.h"
#include "ops/indexer/sm90/indexer.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Leaves in ids[0, k) those with the k highest scores, ascending. Of equal scores the smaller id
// wins. `score` is indexed by position in `ids`' values.
void KeepBest(int32_t* ids, int32_t count, int32_t k, const float* score) {
  if (count > k) {
    std::nth_element(ids, ids + k, ids + count, [score](int32_t a, int32_t b) {
      return score[a] != score[b] ? score[a] > score[b] : a < b;
    });
  }
  std::sort(ids, ids + std::min(count, k));
}

class TokenIndexer {
 public:
  TokenIndexer(const IndexerArgs& args, int32_t r, int32_t t, float* scores, int32_t* ids,
               float* row)
      : args_(args),
        r_(r),
        t_(t),
        visible_((args.positions[t] + 1) / args.ratio),
        scores_(scores),
        ids_(ids),
        row_(row) {}

  void Run() {
    int32_t count = visible_;
    const bool consumes = args_.candidate_use == CandidateUse::kConsume;
    const bool produces = args_.candidate_use == CandidateUse::kProduce;
    if (consumes) {
      count = ListCandidateEntries();
    } else {
      std::iota(ids_, ids_ + count, 0);
    }
    // Too few to choose from; block scores must be known all the same unless all blocks are kept.
    const bool keeps_all_blocks = NumBlocks() <= args_.candidates.max_blocks;
    if (count > args_.top_k || (produces && !keeps_all_blocks)) {
      for (int32_t i = 0; i < count; ++i) scores_[ids_[i]] = Score(ids_[i]);
    }
    KeepBest(ids_, count, args_.top_k, scores_);
    const int32_t kept = std::min(count, args_.top_k);
    std::copy_n(ids_, kept, args_.selected + int64_t{t_} * args_.top_k);
    args_.counts[t_] = kept;
    if (produces) WriteCandidates(keeps_all_blocks);
  }

 private:
  int32_t NumBlocks() const {
    const int32_t size = args_.candidates.block_size;
    return size == 0 ? 0 : (visible_ + size - 1) / size;
  }
  int32_t* Blocks() const {
    return args_.candidates.blocks + int64_t{t_} * args_.candidates.max_blocks;
  }

  int32_t ListCandidateEntries() {
    const int32_t size = args_.candidates.block_size;
    int32_t count = 0;
    for (int32_t i = 0; i < args_.candidates.counts[t_]; ++i) {
      const int32_t begin = Blocks()[i] * size, end = std::min(begin + size, visible_);
      for (int32_t e = begin; e < end; ++e) ids_[count++] = e;
    }
    return count;
  }

  float Score(int32_t e) {
    const auto heads = static_cast<int32_t>(args_.q.shape[1]);
    const int64_t width = args_.q.shape[2];
    const int32_t page = args_.rows.PagesOf(r_)[e / args_.keys.page_rows];
    DCHECK_GE(page, 0) << "entry " << e << " has no page";
    LoadLatentRow(args_.keys, page, e % args_.keys.page_rows, row_);
    const float* q = args_.q.as<float>() + t_ * heads * width;
    const float* weights = args_.weights.as<float>() + int64_t{t_} * heads;
    float sum = 0.0f;
    for (int32_t h = 0; h < heads; ++h) {
      const float dot = detail::Dot(q + h * width, row_, width);
      sum += std::max(dot, 0.0f) * (weights[h] * args_.weight_scale);
    }
    return sum;
  }

  // After the selection: reuses ids_ and the scores' tail.
  void WriteCandidates(bool keeps_all) {
    const int32_t size = args_.candidates.block_size, blocks = NumBlocks();
    std::iota(ids_, ids_ + blocks, 0);
    if (!keeps_all) {
      for (int32_t b = 0; b < blocks; ++b) {  // in place: block b ends at or after entry b
        const int32_t end = std::min((b + 1) * size, visible_);
        scores_[b] = *std::max_element(scores_ + b * size, scores_ + end);
      }
      scores_[blocks - 1] = -kLowest;
    }
    KeepBest(ids_, blocks, args_.candidates.max_blocks, scores_);
    const int32_t kept = std::min(blocks, args_.candidates.max_blocks);
    std::copy_n(ids_, kept, Blocks());
    args_.candidates.counts[t_] = kept;
  }

  const IndexerArgs& args_;
  int32_t r_, t_;
  int32_t visible_;
  float* scores_;  // [visible]
  int32_t* ids_;   // [visible]
  float* row_;     // [Di]
};

}  // namespace

void SelectEntries(Stream stream, Workspace& workspace, const IndexerArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::SelectEntries(stream, workspace, args);
  }
  const size_t mark = workspace.mark();
  float* row = workspace.TakeArray<float>(args.keys.width);
  const size_t rows_mark = workspace.mark();
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    for (int32_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      const int64_t visible = (args.positions[t] + 1) / args.ratio;
      float* scores = workspace.TakeArray<float>(visible);
      int32_t* ids = workspace.TakeArray<int32_t>(visible);
      TokenIndexer(args, r, t, scores, ids, row).Run();
      workspace.ResetTo(rows_mark);
    }
  }
  workspace.ResetTo(mark);
}

int64_t IndexerWorkspaceBytes(int64_t max_entries, int64_t width) {
  const int64_t bytes = (2 * max_entries + width) * static_cast<int64_t>(sizeof(float)) +
                        3 * static_cast<int64_t>(Workspace::kAlignment);
  if constexpr (kCudaBuild) return std::max(bytes, sm90::IndexerWorkspaceBytes(max_entries));
  return bytes;
}

}  // namespace hayate::ops
