#pragma once
// The streaming attention that every CPU implementation runs, cut at the part that differs by
// instruction set. Keys come in blocks of 32 positions that start at multiples of 32, in ascending
// order. Up to 32 queries (tokens × the heads of one group) share a block. Per query and block:
//
//   s_j ← q · k_j                      over the features in order, one FMA each (q carries the
//   scale) m′  ← max(m, max_j s_j)            over the visible keys c   ← exp(m − m′), p_j ←
//   exp(s_j − m′), l ← c·l + Σ p_j o   ← c·o, then o ← o + p_j · v_j  over j in order
//
// An invisible key has p_j = 0 and changes nothing, so a query's result depends on its own position
// alone: a decode step is bit-equal to the same position inside any prefill chunk.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/attention/paged_attention.h"
#include "tensor/cpu_features.h"

namespace hayate::ops::attention {

inline constexpr int kKeysPerBlock = 32;
inline constexpr int kKeysPerHalf = 16;  // a block is two halves, each inside one page
inline constexpr int kMaxQueries = 32;

struct KeyBlock {
  DType dtype = DType::kF32;
  int32_t position = 0;  // of key 0, a multiple of 32
  int32_t begin = 0,
          end = 0;       // keys that some query of the tile sees; others may be unwritten memory
  int64_t k_stride = 0;  // elements between features
  const std::byte* k[2] = {};     // feature 0 of the half's keys: [D][k_stride]
  const std::byte* v[2] = {};     // [16][D]
  const float* k_scales[2] = {};  // [16], null without scales
  const float* v_scales[2] = {};
  // The block that comes after this one, to be fetched from memory meanwhile; or null.
  const KeyBlock* next = nullptr;
};

// State of a tile's queries between blocks. Rows of 32 scores; everything fp32.
struct QueryTile {
  int32_t count = 0;  // at most kMaxQueries
  int32_t d = 0;
  float soft_cap = 0.0f;
  float* q = nullptr;           // [count, D], times the softmax scale
  float* o = nullptr;           // [count, D]
  float* scores = nullptr;      // [kMaxQueries, 32]: s, then p
  float* max = nullptr;         // [kMaxQueries]
  float* new_max = nullptr;     // [kMaxQueries]
  float* correction = nullptr;  // [kMaxQueries]
  float* sum = nullptr;         // [kMaxQueries]
  int32_t* first = nullptr;     // [kMaxQueries]: visible positions [first, last]
  int32_t* last = nullptr;
  float* k_scratch = nullptr;  // [D, 32]
  float* v_scratch = nullptr;  // [32, D]
};

struct Kernels {
  const char* name;
  void (*add_block)(const QueryTile& tile, const KeyBlock& block);
  // x [d] → `dtype` at out[i · stride]; returns the scale (1 unless int8).
  float (*store)(DType dtype, const float* x, int32_t d, std::byte* out, int64_t stride);
};

const Kernels& PlainKernels();
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();
// What this CPU can run, best first; never empty.
std::vector<const Kernels*> AvailableKernels(const CpuFeatures& features);

// The public functions with a given implementation: for tests.
void PagedAttentionWith(const Kernels& kernels, Workspace& workspace,
                        const PagedAttentionArgs& args);
void KvWriteWith(const Kernels& kernels, const KvWriteArgs& args);

// Visible keys of query `query` in a block, bit j for key j.
inline uint32_t VisibleKeys(const QueryTile& tile, int32_t query, const KeyBlock& block) {
  const int32_t begin = tile.first[query] - block.position;
  const int32_t end = tile.last[query] - block.position + 1;
  if (begin >= kKeysPerBlock || end <= 0) return 0;
  const uint32_t below_end = end >= kKeysPerBlock ? ~0u : (1u << end) - 1;
  return begin <= 0 ? below_end : below_end & ~((1u << begin) - 1);
}

}  // namespace hayate::ops::attention
