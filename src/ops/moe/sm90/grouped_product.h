#pragma once
// Products of many matrices of one shape (experts, heads) with the tokens of each, in one launch.

#include <cstdint>
#include <vector>

#include "ops/activation/clamped_swiglu.h"
#include "ops/matmul/sm90/matrix.h"

namespace hayate::ops::sm90 {

// Pairs order[begin, begin + count) of one expert.
struct ExpertTile {
  int32_t expert = 0;  // of the rank
  int32_t begin = 0;
  int32_t count = 0;
};

// Pairs grouped by expert: pair = token · K + j.
struct GroupedPairs {
  int32_t* order = nullptr;      // [pairs], those of experts of this rank
  ExpertTile* tiles = nullptr;   // [max_tiles]
  int32_t* num_tiles = nullptr;  // [1]
  int32_t max_tiles = 0;
  int32_t tile_tokens = 0;  // most pairs of a tile
  // Without an order: every expert has every token, pair = token · num_experts + expert.
  int32_t num_tokens = 0, num_experts = 0;
};
// A tile for every expert that may have pairs, and those that are full.
int32_t MaxTiles(int64_t num_pairs, int64_t num_experts, int32_t tile_tokens);
GroupedPairs EveryPair(int64_t num_tokens, int64_t num_experts, int32_t tile_tokens);

// The same matrix of every expert. A matrix has one part, or two of half the rows.
struct ExpertMatrix {
  const std::byte* const* storage = nullptr;  // [experts], on the device
  MatrixLayout layout = MatrixLayout::kBf16;
  int64_t n = 0, k = 0;
  // From the storage's start, bytes, of the first and the second half of the rows.
  int64_t codes[2] = {}, scales[2] = {};
  int64_t scale_stride = 0;  // kFp8Block
};

// For every pair p of an expert e, with x row p / pairs_per_row:
//   gated    out[p, f] = glu(W_e x)[f] · weights[p],     n = 2F: gate, then up
//   plain    out[p, n] = (W_e x + bias_e)[n] · weights[p]
struct GroupedProductArgs {
  TensorView out;                        // [pairs, F] or [pairs, n], of the type of x
  ConstTensorView x;                     // [rows, k]
  int64_t out_stride = 0, x_stride = 0;  // elements between rows
  int32_t pairs_per_row = 1;
  ExpertMatrix w;
  const float* bias = nullptr;     // [experts, n] or null
  const float* weights = nullptr;  // [pairs] or null
  GroupedPairs pairs;
  bool gated = false;
  SwiGluForm form;  // of gated units
};
void GroupedProduct(Stream stream, const GroupedProductArgs& args);
// Tokens of a tile that suit so many pairs.
int32_t TileTokens(const ExpertMatrix& w, DType x, int64_t x_stride, int64_t num_pairs,
                   int64_t num_experts);
// Layouts and shapes that the tensor-core kernels read; others take the simple one.
bool HasTensorCoreProduct(const ExpertMatrix& w, DType x, int64_t x_stride);
// `half`: rows of the first half of a gate_up; all rows of any other matrix. `storage` is of the
// device.
ExpertMatrix MatrixOf(const PackedMatrix& w, const std::byte* const* storage, int64_t half);
// kUnsupported where the matrices differ in layout, have more than `parts` parts, or are of a type
// without a kernel.
Status CheckAlike(const std::vector<PackedMatrix>& matrices, size_t parts);
// The kernels of GroupedProduct by layout.
void GroupedBf16(Stream stream, const GroupedProductArgs& args);
void GroupedFp8(Stream stream, const GroupedProductArgs& args);
void GroupedMxfp4(Stream stream, const GroupedProductArgs& args);
void GroupedSimple(Stream stream, const GroupedProductArgs& args);

}  // namespace hayate::ops::sm90
