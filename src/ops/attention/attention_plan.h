#pragma once
// How a step's rows are divided among the blocks of the CUDA attention kernels. Planned on the
// host, once a step for all layers of a cache group, and staged with the step's other arrays.
//
//   decode    rows of few tokens: each (row, kv head) is cut into stretches of pages so that every
//             block has about the same work: pages to read, and what a stretch costs besides. A
//             block attends its stretches one after the other; a (row, kv head) of several
//             stretches is merged by whichever block ends last.
//             Without prompts the grid depends on the shape alone, so a graph captures it.
//             A step of one row and not too many keys needs no division: a cluster of blocks takes
//             a kv head and meets in shared memory.
//   prefill   rows of many tokens: tiles of kPrefillQueries queries, longest first. Of few tiles,
//             two or four blocks divide the keys of each where that is faster (processor_split.h).
//             Its sums are then added in another order: their last bits depend on what else a step
//             holds, but not from run to run. By position no tile is divided.
//   both      prefill takes some multiprocessors and decode the others, where that is faster
//             (processor_split.h).
//
// A row of no keys (kv_len 0: a padded row) gives zeros.

#include <cstdint>
#include <span>

#include "ops/attention/paged_attention.h"

namespace hayate::ops {

inline constexpr int32_t kPlanPage = 64;          // the P of the planned kernels
inline constexpr int32_t kMaxDecodeQueries = 16;  // tokens × heads of a group
// A cluster's blocks share the keys of a short row, and the features of a head, four at a time.
inline constexpr int32_t kRowBlocks = 8;
inline constexpr int32_t kRowFeatures = 4 * kRowBlocks;
// Where a row is longer, other multiprocessors' loads are worth more than the meeting costs.
inline constexpr int32_t kShortRowKeys = 2048;
inline constexpr int32_t kPrefillQueries = 128;  // tokens × heads of a group in one tile

// What one block does in one go: queries of one row and kv head against pages [page_begin,
// page_end) of the row.
struct alignas(16) DecodeItem {
  int32_t table_row;  // of the page table
  uint16_t kv_head;
  // Its tokens, and those of the row before them in the step, kManyTokensBefore or more: a step
  // writes their keys.
  uint8_t num_tokens, tokens_before;
  int32_t page_begin, page_end;
  int32_t token;               // the first one
  int32_t position;            // of that token
  int32_t partial;             // slot of the stretch's result; −1: the stretch is the whole
  uint16_t piece, num_pieces;  // the pieces lie in slots [partial − piece, … + num_pieces)
};
static_assert(sizeof(DecodeItem) == 32);
inline constexpr int32_t kManyTokensBefore = 255;

// Tokens [token, token + num_tokens) of the step, with all heads of a group.
struct alignas(16) PrefillTile {
  int32_t table_row;
  int32_t token;
  int32_t position;  // of the first token
  uint16_t num_tokens;
  // Tokens of the row that follow the tile, at most kMaxTokensAfter: keys past these were never
  // written.
  uint16_t tokens_after;
};
inline constexpr int32_t kMaxTokensAfter = 1024;

enum class SplitRule : uint8_t {
  kBalanced,    // equal work for every block: where a sequence is cut depends on the batch
  kByPosition,  // where a sequence is cut depends on its own length alone
};

// Fixed for a rank and a cache group.
struct AttentionPlanShape {
  int32_t num_q_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t group_size = 1;
  int32_t group_offset = 0;
  int32_t head_dim = 0;
  int32_t page_tokens = 0;
  DType activations = DType::kBF16;
  DType cache = DType::kBF16;
  int32_t window = 0;            // the widest among the group's layers; 0 if one of them has none
  int32_t max_rows = 0;          // of a step
  int32_t max_tokens = 0;        // of a step
  int32_t num_processors = 132;  // streaming multiprocessors
  SplitRule split = SplitRule::kBalanced;
};

// Whether the planned kernels serve the shape; SimpleAttention serves all.
bool CanPlan(const AttentionPlanShape& shape);

// What PlanAttention writes for a step of so many rows and tokens, at most.
int64_t PlanStagedBytes(const AttentionPlanShape& shape, int32_t num_rows, int32_t num_tokens);
// Device memory for partial results and their counters, shared by all layers. Zero it at start-up.
int64_t PlanScratchBytes(const AttentionPlanShape& shape);

// The host's arrays of a step. table_row as in AttentionRows, or empty.
struct HostRows {
  std::span<const int32_t> q_begin;  // [R + 1]
  std::span<const int32_t> kv_len;   // [R]
  std::span<const int32_t> table_row;
  // [R], not 0 for rows of a prompt, or empty. By position these are prefill however few their
  // tokens, so that how a prompt was cut into chunks changes nothing.
  std::span<const uint8_t> is_prompt;
};

// Writes the plan to `staged` and returns it with the addresses it has after a copy of its first
// `staged_bytes` to `device_staged`. Equal shapes give equal decode addresses and grids, so that a
// captured launch serves every later plan of decode rows; but one row has two, a short and a long.
AttentionPlan PlanAttention(const AttentionPlanShape& shape, const HostRows& rows,
                            std::byte* staged, std::byte* device_staged, std::byte* scratch);

}  // namespace hayate::ops
