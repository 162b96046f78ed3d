#pragma once
// The product for hundreds of tokens, between the tiles that weights decide and those that
// arithmetic does: tiles divide the tokens evenly, and the features are the rows of the matrix
// instructions. bf16 and fp8 with vector scales.

#include <cstdint>
#include <optional>
#include <span>

#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

// Each tile goes through all of K in order; in two parts, each in order, whose sums are added.
struct FittedTiling {
  int16_t tile_n = 128;  // output features
  int16_t tile_t = 128;  // tokens
  int16_t cluster = 1;   // blocks with neighbouring features that share the tokens
  int16_t parts = 1;     // of K, blocks of a cluster
  int blocks_of_cluster() const { return cluster * parts; }
  friend bool operator==(const FittedTiling&, const FittedTiling&) = default;
};

struct FittedParams;
struct FittedVariant {
  FittedTiling tiling;
  void (*launch)(const Stream& stream, const FittedParams& params, int blocks,
                 bool w_changes) = nullptr;
};

std::span<const FittedVariant> FittedBf16();
std::span<const FittedVariant> FittedFp8();
// Nothing for block scales.
std::span<const FittedVariant> FittedVariants(Scaling scaling);

// The best one, where it is estimated to be faster than other tiles, which take `other_ns`.
std::optional<FittedTiling> ChooseFitted(const GemmArgs& args, int num_multiprocessors,
                                         double other_ns);
// Faster than the narrow or wide tiling, on the current device.
std::optional<FittedTiling> ChooseFitted(const GemmArgs& args, const GemmTiling& other);
// Whether a gated product's rows can be read in turns, and its result be written.
bool CanGateFitted(const GemmArgs& args);
// In bf16, measured on an H200 (README.md): cuBLASLt has no tiles for these numbers of tokens.
bool FittedBeatsCublasLt(int64_t t);
// Queues the product. No allocation, no synchronisation: may be captured.
void FittedGemm(Stream stream, const GemmArgs& args, const FittedTiling& tiling);

}  // namespace hayate::ops::sm90
