#pragma once
// Rows of a latent cache: one vector of D features per position (or per compressed entry), shared
// by all heads and used as key and as value. The last R features carry the rotation.
//
// A page of one layer holds n rows: first the data of all rows, then the scales of all rows. Scales
// are powers of two stored as E8M0, 2^(byte − 127), unless said otherwise. Storing a packed row
// gives the numbers of the model's own quantisation (rounding to bf16 first), bit by bit.
//
//   format    data of a row                       scales of a row                 D = 512, R = 64
//   kF32      D × f32                             –                               2048 B
//   kBF16     D × bf16                            –                               1024 B
//   kFp8      (D − R) × e4m3, R × bf16            1 per 64 features, then padding  584 B
//                                                 to a multiple of 8 bytes
//   kFp8All   D × e4m3                            1 per 32 features                528 B
//   kFp4All   D × e2m1, two to a byte             1 E4M3 per 16 features           288 B
//   kFp4Key   D × e2m1, two to a byte             1 per 32 features                 68 B (D = 128)
//   kFp8Row   (D − R) × e4m3, then the scales,    –                                656 B (D = 576)
//             one f32 per 128, then R × bf16
//   kFp8Key   D × e4m3                            1 f32 per 128 features           132 B (D = 128)
//
// The last two are DeepSeek V3.2's; their f32 scales are powers of two as well.
//
// Two E2M1 codes of a byte: the even feature is the low nibble.

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

enum class RowFormat : uint8_t { kF32, kBF16, kFp8, kFp8All, kFp4All, kFp4Key, kFp8Row, kFp8Key };

// One layer of one group's pool. The bytes of page p start at base + p × page_stride.
struct LatentLayerView {
  std::byte* base = nullptr;
  int64_t page_stride = 0;  // bytes between pages (all layers of the group)
  RowFormat format = RowFormat::kF32;
  int32_t page_rows = 0;  // n
  int32_t width = 0;      // D
  int32_t rotary = 0;     // R
};

// Whether rows of this shape can have the format: blocks must be whole.
bool HasRowFormat(RowFormat format, int32_t width, int32_t rotary);
// Bytes of a row's data and of its scales.
int64_t RowDataBytes(RowFormat format, int32_t width, int32_t rotary);
int64_t RowScaleBytes(RowFormat format, int32_t width, int32_t rotary);
// Bytes of one layer of one page, a multiple of 8.
int64_t LatentPageBytes(const LatentLayerView& shape);

// One row, quantised to its format and back. Not queued: host code, and the definition.
void StoreLatentRow(const LatentLayerView& view, int32_t page, int32_t row, const float* x);
void LoadLatentRow(const LatentLayerView& view, int32_t page, int32_t row, float* out);

// Where rows go: row i is entry index[i] of sequence seq[i]; nowhere where index[i] < 0.
struct LatentTargets {
  int32_t count = 0;
  const int32_t* seq = nullptr;    // [count] rows of the step
  const int32_t* index = nullptr;  // [count] entries from the sequence's start
};

// seq [T]: the step row that owns each token.
void ListTokenRows(Stream stream, const AttentionRows& rows, int32_t num_tokens, int32_t* seq);

// Finishes latents and stores them: RMS norm, rotation of the last R features, where asked the
// Hadamard transform of all D (times D^-½), the format's quantisation.
struct LatentWriteArgs {
  TensorView x;                 // [N, D]; on return normed, not rotated; f32 or, on CUDA, bf16
  const float* norm = nullptr;  // [D]; null: x is normed already
  float norm_eps = 1e-6f;
  const float* cos_sin = nullptr;  // [N, R]: cos then sin, R/2 each; null: no rotation
  bool hadamard = false;           // D a power of two
  LatentLayerView cache;
  AttentionRows rows;  // its page table; a page holds cache.page_rows entries
  LatentTargets targets;
};
void LatentWrite(Stream stream, Workspace& workspace, const LatentWriteArgs& args);
int64_t LatentWriteWorkspaceBytes(int64_t width);

// Stores row t of x [T, D] at position positions[t] of the sequence that owns token t; with the
// Hadamard transform of all D where asked.
struct AppendRowsArgs {
  ConstTensorView x;  // f32 or, on CUDA, bf16
  bool hadamard = false;
  const int32_t* positions = nullptr;  // [T]
  LatentLayerView cache;
  AttentionRows rows;
};
void AppendRows(Stream stream, Workspace& workspace, const AppendRowsArgs& args);

// y = H·x · n^-½ in place, H the Sylvester matrix of size n, a power of two.
void Hadamard(float* x, int64_t n);

}  // namespace hayate::ops
