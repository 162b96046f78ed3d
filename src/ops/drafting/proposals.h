#pragma once
// The rows of a drafter's batch that want guesses, as the drafter's passes take them. Device memory
// throughout.

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "tensor/device.h"

namespace hayate::ops {

// N rows of a batch of R want guesses.
struct Proposals {
  int32_t count = 0;              // N
  const int32_t* rows = nullptr;  // [N] of [0, R), ascending
};

struct ListProposalsArgs {
  AttentionRows batch;
  Proposals proposals;
  const int32_t* positions = nullptr;  // [T] of the batch
  const int32_t* next_ids = nullptr;   // [T] the token one position later
  int32_t* last = nullptr;             // [N] out: the row's last token in the batch
  int32_t* last_positions = nullptr;   // [N] out: its position
  int32_t* anchors = nullptr;          // [N] out: the token after it
};
void ListProposals(Stream stream, const ListProposalsArgs& args);

// The same rows with `tokens_per_row` queries each, over keys up to `ahead` tokens behind the row's
// last one.
struct ProposalRowsArgs {
  AttentionRows batch;
  Proposals proposals;
  int32_t tokens_per_row = 1;
  int32_t ahead = 0;
  int32_t* q_begin = nullptr;    // [N + 1] out
  int32_t* kv_len = nullptr;     // [N] out
  int32_t* table_row = nullptr;  // [N] out: of the batch's page table
};
void ListProposalRows(Stream stream, const ProposalRowsArgs& args);

// positions[n] = from[n] + by; kv_len[n] = positions[n] + 1 where it is not null.
struct ShiftPositionsArgs {
  const int32_t* from = nullptr;  // [count]
  int32_t count = 0;
  int32_t by = 0;
  int32_t* positions = nullptr;  // [count] out
  int32_t* kv_len = nullptr;     // [count] out
};
void ShiftPositions(Stream stream, const ShiftPositionsArgs& args);

// A block of B queries per proposing row, which see each other: the anchor, then B − 1 times
// `noise_token`, at the B positions behind the row's last token.
struct DraftBlocksArgs {
  int32_t count = 0;  // N
  int32_t block = 0;  // B
  int32_t noise_token = 0;
  const int32_t* last_positions = nullptr;  // [N]
  const int32_t* anchors = nullptr;         // [N]
  int32_t* token_ids = nullptr;             // [N · B] out
  int32_t* positions = nullptr;             // [N · B] out
  int32_t* context_end = nullptr;           // [N · B] out: last_positions of the row
  int32_t* row = nullptr;                   // [N · B] out: n
  int32_t* place = nullptr;                 // [N · B] out: in the block
  int32_t* selected = nullptr;              // [N · B, B] out: 0 … B − 1
  int32_t* selected_count = nullptr;        // [N · B] out: B
  int32_t* pages = nullptr;                 // [N] out: n
};
void ListDraftBlocks(Stream stream, const DraftBlocksArgs& args);

// A batch with the anchor of every proposing row behind it: T + N tokens of the same R rows.
struct AddAnchorsArgs {
  AttentionRows batch;
  Proposals proposals;
  int32_t num_tokens = 0;              // T
  const int32_t* token_ids = nullptr;  // [T]
  const int32_t* positions = nullptr;  // [T]
  const int32_t* next_ids = nullptr;   // [T]
  int32_t* out_ids = nullptr;          // [T + N] out
  int32_t* out_positions = nullptr;    // [T + N] out
  int32_t* q_begin = nullptr;          // [R + 1] out
  int32_t* kv_len = nullptr;           // [R] out
  int32_t* anchors = nullptr;          // [N] out: the anchors' places among the tokens
};
void AddAnchors(Stream stream, const AddAnchorsArgs& args);

}  // namespace hayate::ops
