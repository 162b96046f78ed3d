#include "ops/indexer/sm90/indexer.h"

#include <algorithm>

#include "base/align.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int64_t kPassBytes = int64_t{128} << 20;  // of scores

int64_t TokensPerPass(int64_t max_entries) {
  return std::clamp<int64_t>(kPassBytes / (max_entries * 4), 1, 8192);
}

}  // namespace

void SelectEntries(Stream stream, Workspace& workspace, const IndexerArgs& args) {
  const int64_t tokens = args.q.shape[0];
  if (tokens == 0) return;
  const int64_t entries =
      std::max<int64_t>(1, int64_t{args.rows.page_table_stride} * args.keys.page_rows);
  const int64_t step = std::min(tokens, TokensPerPass(entries));
  const size_t mark = workspace.mark();
  IndexPass pass = {.args = args, .max_entries = entries};
  pass.scores = workspace.TakeArray<uint32_t>(step * entries);
  for (int64_t begin = 0; begin < tokens; begin += step) {
    pass.first_token = static_cast<int32_t>(begin);
    pass.num_tokens = static_cast<int32_t>(std::min(step, tokens - begin));
    ScoreEntries(stream, pass);
    KeepBestEntries(stream, pass);
    // Last: it overwrites scores.
    if (args.candidate_use == CandidateUse::kProduce) KeepBestBlocks(stream, pass);
  }
  workspace.ResetTo(mark);
}

int64_t IndexerWorkspaceBytes(int64_t max_entries) {
  // A page table may have room for up to a page of 1024 rows and a column more than a context
  // needs.
  const int64_t entries = AlignUp<int64_t>(max_entries, 1024) + 2 * 1024;
  return std::max<int64_t>(kPassBytes, entries * 4) + static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops::sm90
