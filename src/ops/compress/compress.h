#pragma once
// Compressors (DeepSeek V4): every `ratio` tokens pool into one latent, per channel c by a softmax
// over the tokens' gates:
//
//   plain    (W = D):   entry_b[c] = Σ_t softmax_t(gate)[c] · kv_t[c],  t in block b
//   overlap  (W = 2D):  over 2·ratio slots: the first D channels of the tokens of block b − 1, then
//                       the last D channels of the tokens of block b; block −1 is absent
//
// where gate_t = gate projection + ape[t mod ratio]. An entry appears with the last token of its
// block. What an unfinished block needs is kept between steps:
//
//   pending  one per sequence, a ring of slots: position p is at slot p mod N. Plain, N = 1 +
//   drafts:
//            running maximum, sum and weighted sum up to p, [N, 3, D]. Overlap, N = 2·ratio +
//            drafts: kv and gate of the token, [N, 2, W]. Read for positions of the block that the
//            sequence is in, and of the block before inside the same page: nothing at a page
//            border.
//   overlap  one per page of P tokens: the first halves of its last block, [ratio, 2, D]. It is
//   what
//            the next page's first block needs, so a prefix of whole pages can be resumed from its
//            last page alone.
//
// Rows may end in `drafts` tokens that turn out wrong: the sequence goes on at any position from
// the first of them on. What they wrote lies in slots that are written again before they are read,
// and N is large enough that they overwrite nothing that is still needed. Tokens enter one by one,
// so the bits of an entry do not depend on how its tokens were chunked.

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/sparse_attention/latent_rows.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

// One layer's states in a group's pool: the state of page p lies at base + p × page_stride.
struct CompressorStates {
  std::byte* base = nullptr;
  int64_t page_stride = 0;
};
int64_t PendingStateBytes(int32_t ratio, int32_t width, int32_t head_dim, int32_t max_drafts);
int64_t OverlapStateBytes(int32_t ratio, int32_t head_dim);

// Which entries a step completes, in the order of their tokens.
struct CompressedEntries {
  LatentTargets targets;               // step row and entry index, per entry
  const int32_t* positions = nullptr;  // [count] of the entry's first token: its rotation
};
// Fills seq, index and positions, each [T]; returns the count of entries. On CUDA, where nobody
// knows that count, it is T: entry t is what token t completes, with index −1 and position 0 where
// it completes none. An entry of settled tokens has index −1: it is there, and is not written.
struct ListEntriesArgs {
  AttentionRows rows;
  const int32_t* settled = nullptr;    // [R] positions before are settled; null: none
  const int32_t* positions = nullptr;  // [T]
  int32_t num_tokens = 0;              // T
  int32_t ratio = 0;
  int32_t* seq = nullptr;
  int32_t* index = nullptr;
  int32_t* entry_positions = nullptr;
};
int32_t ListCompressedEntries(Stream stream, const ListEntriesArgs& args);

struct CompressArgs {
  // [E, D], E entries completed in this step, in the order of the tokens; on CUDA [T, D], of which
  // only rows of completed entries are written.
  TensorView out;
  ConstTensorView kv;                  // [T, W]
  ConstTensorView gate;                // [T, W]
  int64_t row_stride = 0;              // elements between tokens of kv and of gate
  const float* ape = nullptr;          // [ratio, W] or null
  const int32_t* positions = nullptr;  // [T]
  int32_t ratio = 0;
  int32_t max_drafts = 0;  // of a row, as PendingStateBytes was told
  CompressorStates pending;
  AttentionRows pending_rows;  // entry 0 of a row's page table is its state
  CompressorStates overlap;    // W = 2D alone
  AttentionRows overlap_rows;
  int32_t page_tokens = 0;  // P, a multiple of ratio
};
void Compress(Stream stream, const CompressArgs& args);

// The definition for one sequence from its start: kv and gate [T, W] give out [T / ratio, D], in
// double.
void CompressReference(float* out, const float* kv, const float* gate, const float* ape, int64_t t,
                       int32_t ratio, int32_t width, int32_t head_dim);

}  // namespace hayate::ops
