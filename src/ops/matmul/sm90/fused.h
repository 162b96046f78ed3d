#pragma once
// Products whose epilogue is the operator behind them. Each says whether it took the call: weights
// and activations of bf16, or for SwiGLU of fp8, no bias, tilings of its own.

#include <optional>

#include "ops/matmul/matmul_add_norm.h"
#include "ops/matmul/matmul_swiglu.h"
#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

// Columns of a row whose squares are summed apart, at least.
inline constexpr int64_t kMinPartColumns = 16;

// Whether Matmul of T rows can do what a norm left to it.
bool DividesRows(const PackedMatrix& w, int64_t t);
// Leaves the norm's division to args.next.
std::optional<DeferredNorm> MatmulAddSquares(Stream stream, const MatmulAddNormArgs& args);
bool GatedMatmul(Stream stream, const MatmulSwiGluArgs& args);

}  // namespace hayate::ops::sm90
