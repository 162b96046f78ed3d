#pragma once
// ops::SelectEntries on a CUDA device: one kernel scores every entry that a token may see, one
// keeps the best. The entries of a sequence are bounded by its page table, so that a launch covers
// any length; tokens go in passes that fit the workspace.

#include "ops/indexer/indexer.h"

namespace hayate::ops::sm90 {

void SelectEntries(Stream stream, Workspace& workspace, const IndexerArgs& args);
int64_t IndexerWorkspaceBytes(int64_t max_entries);

// Scores are kept as numbers that order alike: larger is better, 0 is no entry at all.
inline constexpr uint32_t kNoEntry = 0;

struct IndexPass {
  IndexerArgs args;
  int32_t first_token = 0, num_tokens = 0;
  int64_t max_entries = 0;     // of a token: the stride of the arrays below
  uint32_t* scores = nullptr;  // [num_tokens, max_entries]
};
void ScoreEntries(Stream stream, const IndexPass& pass);
void KeepBestEntries(Stream stream, const IndexPass& pass);
// Blocks of entries by their highest score, the newest always among them.
void KeepBestBlocks(Stream stream, const IndexPass& pass);

}  // namespace hayate::ops::sm90
