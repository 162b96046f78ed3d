#pragma once
// Attention over a paged KV cache: decode, prefill chunks and verification in one call.
//
//   out[t, h] = Σ_s softmax_s(scale · q[t, h] · k[s, g(h)] ) v[s, g(h)]    over the visible
//   positions s
//
// visible: s ≤ position(t), and s > position(t) − window where a window is set. A logit soft cap c
// maps a score x to c · tanh(x / c). A sink adds exp(sink[h]) to the softmax's denominator.
//
// Cache layout, per layer inside a page, element type `dtype`:
//   CPU   K: [Hkv, D, P] then V: [Hkv, P, D]; for int8 each followed by fp32 scales [Hkv, P]
//         (symmetric, per token and head). Keys lie with the tokens of a page side by side, so that
//         one vector holds one feature of 16 keys and a score never needs a sum across lanes.
//         Fastest with P a multiple of 16; any P works.
//   CUDA  K: [Hkv, P, D] then V: [Hkv, P, D]: the keys of a head and page are one run of memory.
//         The fast kernels want P = 64; any P works.
// The key and value of the row's own tokens are already in the cache when attention runs.
// The order of summation depends on (position, window) alone: not on the batch, not on how the
// prompt was chunked.

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor_view.h"
#include "tensor/workspace.h"

namespace hayate::ops {

// One layer of one group's pool. The bytes of page p start at base + p × page_stride.
struct KvLayerView {
  std::byte* base = nullptr;
  int64_t page_stride = 0;    // bytes between pages (all layers of the group)
  DType dtype = DType::kF16;  // CPU: kF32, kF16, kBF16, kI8; CUDA: kF32, kF16, kBF16, kF8E4M3
  int32_t page_tokens = 0;    // P
  int32_t num_kv_heads = 0;   // Hkv of this rank
  int32_t head_dim = 0;       // D
};

// Bytes of one layer of one page.
int64_t KvLayerPageBytes(DType dtype, int32_t page_tokens, int32_t num_kv_heads, int32_t head_dim);

struct DecodeItem;
struct PrefillTile;

// What PlanAttention (attention_plan.h) made of a step's rows, for CUDA. Device memory.
struct AttentionPlan {
  int64_t staged_bytes = 0;
  int32_t num_decode_blocks = 0;
  int32_t decode_queries = 0;  // at most, of an item: 8 or 16
  bool short_row = false;  // the only row has at most kShortRowKeys: nothing is read but its length
  const int32_t* decode_begin = nullptr;  // [num_decode_blocks + 1] into decode_items
  const DecodeItem* decode_items = nullptr;
  int32_t num_prefill_tiles = 0;
  const PrefillTile* prefill_tiles = nullptr;
  int32_t prefill_processors = 0;  // multiprocessors that prefill takes
  bool beside = false;             // prefill is launched first, and decode runs on the others
  bool prefill_pairs = false;      // tiles 2i and 2i + 1 are neighbours and share their keys
  int32_t prefill_parts = 1;    // blocks that divide the keys of a tile: 1, or 2 or 4 but no pairs
  int32_t* counters = nullptr;  // a slot each; 0 between launches
  float* partials = nullptr;
};

// R rows of the step; row r owns tokens [q_begin[r], q_begin[r + 1]) of q, at positions
// [kv_len[r] − count, kv_len[r]). Device memory.
struct AttentionRows {
  int32_t num_rows = 0;
  const int32_t* q_begin = nullptr;  // [R + 1]
  const int32_t* kv_len = nullptr;   // [R], counting the row's own tokens
  const int32_t* page_table =
      nullptr;  // [R, page_table_stride]; −1 where a window dropped the page
  int32_t page_table_stride = 0;
  // [R]: the row of page_table that holds row r's pages; null: r itself. On CUDA page_table is the
  // tables of all slots, kept on the device, and table_row says which slot a row is.
  const int32_t* table_row = nullptr;

  // Without a plan (decode_begin is null) CUDA attends with its simple kernel.
  AttentionPlan plan;

  constexpr const int32_t* PagesOf(int32_t row) const {
    return page_table + int64_t{table_row == nullptr ? row : table_row[row]} * page_table_stride;
  }
};

// Appends keys and values of T tokens to the cache.
struct KvWriteArgs {
  ConstTensorView k;         // [T, Hkv, D], f32 on the CPU, f32 or bf16 on CUDA
  ConstTensorView v;         // [T, Hkv, D]
  int64_t k_row_stride = 0;  // elements between tokens (k and v are slices of one qkv buffer)
  int64_t v_row_stride = 0;
  const int32_t* positions = nullptr;  // [T]
  AttentionRows rows;
  KvLayerView cache;
};
// On CUDA a token whose page is −1 (a padded row) is not written.
void KvWrite(Stream stream, const KvWriteArgs& args);

struct PagedAttentionArgs {
  TensorView out;            // [T, Hq, D]
  ConstTensorView q;         // [T, Hq, D]
  int64_t q_row_stride = 0;  // elements between tokens
  AttentionRows rows;
  KvLayerView cache;
  float scale = 1.0f;  // usually 1/√D
  // Query head h of this rank reads kv head (h + group_offset) / group_size of this rank. The
  // offset is not 0 where a rank's first query head is not the first of its group.
  int32_t group_size = 1;
  int32_t group_offset = 0;
  int32_t window = 0;            // 0: none; W: the last W positions, counting the token's own
  float soft_cap = 0.0f;         // 0: none
  const float* sinks = nullptr;  // [Hq] or null
};
void PagedAttention(Stream stream, Workspace& workspace, const PagedAttentionArgs& args);

int64_t PagedAttentionWorkspaceBytes(int64_t max_tokens, int64_t num_q_heads, int32_t head_dim);

// The definition, in plain fp32 over the same arguments.
void PagedAttentionReference(const PagedAttentionArgs& args);

}  // namespace hayate::ops
