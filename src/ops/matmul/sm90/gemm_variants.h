#pragma once
// The compiled tilings of each operand type. Tables in several .cu files, so that they build in
// parallel.

#include <span>

#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

// What a bulk copy brings of an operand: rows (of x in narrow tiles: at most), and blocks of K of
// kRowBytes.
struct GemmBoxes {
  int32_t w_rows, x_rows;
  int32_t blocks;    // of a stage, and of w
  int32_t x_blocks;  // of x
};

struct GemmVariant {
  GemmTiling tiling;
  GemmBoxes boxes;
  void (*launch)(const Stream& stream, const GemmParams& params, int blocks,
                 bool w_changes) = nullptr;
};

std::span<const GemmVariant> Bf16Narrow();
std::span<const GemmVariant> Bf16Wide();
std::span<const GemmVariant> Fp8BlockNarrow();
std::span<const GemmVariant> Fp8BlockWide();
std::span<const GemmVariant> Fp8VectorNarrow();
std::span<const GemmVariant> Fp8VectorWide();

std::span<const GemmVariant> VariantsOf(Scaling scaling, GemmShape shape);

}  // namespace hayate::ops::sm90
