#pragma once
// Which compressed entries a query attends to (DeepSeek V4's lightning indexer):
//
//   score[e] = Σ_h relu(q[t, h] · key[e]) · weight[t, h]     over entries e < (p + 1) / ratio
//   selected = the `top_k` highest, in ascending order of e
//
// Of equal scores the earlier entry wins. Up to top_k visible entries are all taken without looking
// at their keys.
//
// Candidates (V4.1): one layer ranks blocks of entries by their highest score and keeps the best,
// the newest always among them; later layers of the step select from those blocks alone.

#include <cstdint>

#include "ops/sparse_attention/latent_rows.h"

namespace hayate::ops {

// Blocks of entries, per token: block[t, 0 … count[t]), ascending.
struct IndexCandidates {
  int32_t* blocks = nullptr;  // [T, max_blocks]
  int32_t* counts = nullptr;  // [T]
  int32_t max_blocks = 0;
  int32_t block_size = 0;  // entries
};
enum class CandidateUse : uint8_t { kNone, kProduce, kConsume };

struct IndexerArgs {
  int32_t* selected = nullptr;  // [T, top_k]
  int32_t* counts = nullptr;    // [T], at most top_k
  int32_t top_k = 0;

  ConstTensorView q;        // [T, Hi, Di], rotated (and transformed) like the keys; f32 or, on
                            // CUDA, bf16
  ConstTensorView weights;  // [T, Hi] f32
  float weight_scale = 1.0f;
  const int32_t* positions = nullptr;  // [T]
  LatentLayerView keys;                // width Di
  AttentionRows rows;                  // a page holds keys.page_rows entries
  int32_t ratio = 0;

  CandidateUse candidate_use = CandidateUse::kNone;
  IndexCandidates candidates;
};
void SelectEntries(Stream stream, Workspace& workspace, const IndexerArgs& args);

// `max_entries`: the most visible entries of one query.
int64_t IndexerWorkspaceBytes(int64_t max_entries, int64_t width);

// The definition, in double, sorting all scores.
void SelectEntriesReference(const IndexerArgs& args);

}  // namespace hayate::ops
