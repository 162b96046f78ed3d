#pragma once
// Dense matrix product with prepared weights: out[T, N] = x[T, K] · Wᵀ (+ bias), W is [N, K].
//
// Weights are prepared once, at load: repacked into the layout that the device's kernels stream
// best. One call is one rank's work; a tensor-parallel layer calls it on its shard on every rank.
//
// CPU, fast mode: block-quantised kinds quantise the activations to 8 bits per block of 32 (T ×
// K/32 scales), multiply in int8, accumulate in fp32; bf16 weights meet activations rounded to bf16
// where the CPU multiplies bf16. Exact mode: fp32 activations against dequantised weights. In both,
// the result of a row does not depend on T or on the other rows.
//
// CUDA, fast mode: activations bf16; fp8 weights quantise them to fp8, which the operator before
// can do on its way (x_fp8). Exact mode: activations f32. How sums are ordered is SumOrder's say.
// sm90/README.md has the kernels. A matrix is multiplied by one stream at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/matmul/sum_order.h"
#include "ops/norm/deferred_norm.h"
#include "ops/quantize/fp8_rows.h"
#include "tensor/block_scales.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"
#include "tensor/workspace.h"

namespace hayate::ops {

namespace sm90 {
class CublasLtPlans;
}

enum class MatmulPrecision : uint8_t {
  kFast,   // the device's quickest path that keeps the weights' own precision
  kExact,  // fp32 activations, fp32 products
  // CUDA: float weights become fp8 with a scale per output feature, and meet activations in fp8
  // with a scale per row. Elsewhere, and for other types of weights: kFast.
  kFp8,
};

// Consecutive output rows of one layout; private to the implementation (ops/matmul/layout.h, on
// CUDA sm90/matrix.h).
struct PackedPart {
  int64_t n = 0;       // output rows
  int64_t offset = 0;  // bytes from the start of the storage to the first tile
  int32_t layout = 0;  // Layout
};

// Prepared weights. Immutable after Pack; shared by every step of its rank.
struct PackedMatrix {
  int64_t n = 0;                     // output features
  int64_t k = 0;                     // input features
  DType source_dtype = DType::kF32;  // of the first piece
  std::vector<PackedPart> parts;     // in order of output rows
  Buffer storage;
  SumOrder sum_order = SumOrder::kFastest;        // CUDA; the CPU's order is fixed
  std::shared_ptr<sm90::CublasLtPlans> cublaslt;  // CUDA, where the library is there
};

// Rows of several matrices of equal K become one: q, k and v; gate and up. Pieces may differ in
// dtype; they are then packed piece by piece. Rows [row_begin, row_end) and columns [col_begin,
// col_end) of each piece are taken: a rank's shard. Column bounds fall on block borders of the
// piece's dtype, and on multiples of 32 where it has scales of its own.
struct MatrixPiece {
  ConstTensorView weights;  // [N, K], any dtype of tensor/dtype.h that can hold weights
  int64_t row_begin = 0, row_end = 0;
  int64_t col_begin = 0, col_end = 0;
  // F8_E4M3 (blocks of whole multiples of 32 columns) and F4 (blocks of 1 × 32, F8_E8M0: MXFP4 with
  // neighbours in a byte). F4 without scales is kUnsupported.
  BlockScales scales;
  // 2 takes every other row from row_begin on: gate and up of a matrix that interleaves them.
  int32_t row_step = 1;

  int64_t num_rows() const { return (row_end - row_begin + row_step - 1) / row_step; }

  // The whole matrix.
  static MatrixPiece Whole(ConstTensorView weights) {
    return {weights, 0, weights.shape[0], 0, weights.shape[1]};
  }
};

// kUnsupported for a dtype that the device has no kernel for; kResourceExhausted without memory.
Result<PackedMatrix> PackMatrix(Device& device, std::span<const MatrixPiece> pieces,
                                MatmulPrecision precision);

struct MatmulArgs {
  TensorView out;     // [T, N], f32 or, on CUDA, bf16
  ConstTensorView x;  // [T, K], f32 on the CPU and in the exact mode, else bf16
  // x quantised as WantedFp8(*w) says, in rows of TakeFp8Rows; x.data may then be null.
  Fp8Rows x_fp8;
  DeferredNorm x_norm;  // what MatmulAddNorm left to do to x
  const PackedMatrix* w;
  const float* bias = nullptr;  // [N] or null
  // Elements between rows of `out`, for a slice of a wider buffer; 0: N.
  int64_t out_row_stride = 0;
};

// Scratch for quantised activations comes from `workspace` and is given back before it returns.
void Matmul(Stream stream, Workspace& workspace, const MatmulArgs& args);

// Upper bound of what Matmul takes from the workspace for T rows of K features, bytes, on any
// device that this build knows.
int64_t MatmulWorkspaceBytes(int64_t t, int64_t k);

// How the whole matrix wants its activations quantised: nothing on the CPU, and where it is not
// fp8.
std::optional<Fp8Scaling> WantedFp8(const PackedMatrix& w);
// Rows of T activations of K features in the layout that Matmul reads, and their bytes.
Fp8Rows TakeFp8Rows(Workspace& workspace, Fp8Scaling scaling, int64_t t, int64_t k);
int64_t Fp8RowsBytes(Fp8Scaling scaling, int64_t t, int64_t k);

// The definition: fp32 dot products over dequantised weights, in order of k. [N, K] dequantised to
// `weights_f32` by the caller.
void MatmulReference(float* out, const float* x, const float* weights_f32, const float* bias,
                     int64_t t, int64_t n, int64_t k);

// Row `row` of the matrix, dequantised to fp32: embedding look-up from the prepared head of a model
// with tied weights. `out` is [K].
void UnpackRow(const PackedMatrix& w, int64_t row, float* out);

}  // namespace hayate::ops
