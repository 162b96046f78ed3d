#include "ops/sparse_attention/sm90/sparse_attention.h"

#include <algorithm>

#include "base/align.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int64_t kHeadsPerBlock = 16;
// Blocks that fill a device, twice its multiprocessors; keys are split until there are so many.
constexpr int64_t kBlocks = 264;
constexpr int64_t kMaxSplits = 32;

int64_t SplitsFor(int64_t tokens, int64_t heads) {
  return std::clamp<int64_t>(kBlocks / (tokens * CeilDiv(heads, kHeadsPerBlock)), 1, kMaxSplits);
}

}  // namespace

void SparseAttention(Stream stream, Workspace& workspace, const SparseAttentionArgs& args) {
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1];
  if (tokens == 0 || heads == 0) return;
  if (!HasTiledAttention(args)) return SimpleSparseAttention(stream, args);
  const size_t mark = workspace.mark();
  SplitSparseAttentionArgs split = {.attention = args,
                                    .num_heads = static_cast<int32_t>(heads),
                                    .width = static_cast<int32_t>(args.q.shape[2]),
                                    .value_width = static_cast<int32_t>(args.out.shape[2]),
                                    .splits = static_cast<int32_t>(SplitsFor(tokens, heads))};
  if (split.splits > 1) {
    split.partials =
        workspace.TakeArray<float>(tokens * heads * split.splits * (args.out.shape[2] + 2));
  }
  TiledSparseAttention(stream, split);
  workspace.ResetTo(mark);
}

int64_t SparseAttentionWorkspaceBytes(int64_t value_width) {
  return kBlocks * kHeadsPerBlock * (value_width + 2) * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops::sm90
