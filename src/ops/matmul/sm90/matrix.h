#pragma once
// Prepared weights on a CUDA device: PackedMatrix whose parts have the layouts below, and the
// launchers behind PackMatrix and Matmul.

#include <cstdint>
#include <span>

#include "base/align.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

// How the rows of a part lie in storage: row-major, without gaps. Numbered apart from the CPU's
// layouts.
enum class MatrixLayout : uint8_t {
  kF32 = 64,   // exact mode, whatever the source
  kBf16,       // plain source types
  kFp8Block,   // e4m3 codes, then f32 scales of 128 × 128 weights [K/128, BlockScaleStride(N)]
  kFp8Vector,  // e4m3 codes, then f32 scales of rows [N]
  kStored,     // the blocks of the source dtype, as a GGUF file has them
  kMxfp4,      // e2m1 codes, two to a byte, then e8m0 scales of 32 columns [N, K/32]
};
// PackedPart::layout.
struct PartFormat {
  MatrixLayout layout;
  DType stored = DType::kBF16;  // kStored only

  static PartFormat Of(const PackedPart& part) {
    return {static_cast<MatrixLayout>(part.layout & 0xFF), static_cast<DType>(part.layout >> 8)};
  }
  int32_t code() const { return static_cast<int32_t>(layout) | static_cast<int32_t>(stored) << 8; }
  friend bool operator==(const PartFormat&, const PartFormat&) = default;
};

inline constexpr int64_t kPartAlignment = 256;

// Bytes of the weights themselves, and from the start of a part to its scales.
int64_t CodeBytes(const PartFormat& format, int64_t n, int64_t k);
inline int64_t ScalesOffset(const PartFormat& format, int64_t n, int64_t k) {
  return AlignUp<int64_t>(CodeBytes(format, n, k), kPartAlignment);
}
int64_t PartBytes(const PartFormat& format, int64_t n, int64_t k);

Result<PackedMatrix> PackMatrix(Device& device, std::span<const MatrixPiece> pieces,
                                MatmulPrecision precision);
void Matmul(Stream stream, Workspace& workspace, const MatmulArgs& args);
int64_t MatmulWorkspaceBytes(int64_t t, int64_t k);

// How x must be quantised for the fp8 parts of `w`; nothing where w has none, or parts of both.
std::optional<Fp8Scaling> Fp8ScalingOf(const PackedMatrix& w);

}  // namespace hayate::ops::sm90
