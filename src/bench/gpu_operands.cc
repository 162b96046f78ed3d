#include "bench/gpu_operands.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "tensor/float16.h"
#include "weights/dummy.h"

namespace hayate::bench {
namespace {

constexpr int64_t kRepeated = int64_t{16} << 20;
// Of the memory: what the largest case takes, with room to spare.
constexpr double kMemoryFraction = 0.2;

std::vector<std::byte> MakeNormals(DType dtype) {
  std::vector<std::byte> out(kRepeated);
  Rng rng(7);
  const size_t size = static_cast<size_t>(Info(dtype).block_bytes);
  for (size_t at = 0; at + size <= out.size(); at += size) {
    const float value = rng.NextNormal();
    if (dtype == DType::kBF16) {
      const uint16_t bits = FloatToBf16(value);
      std::memcpy(&out[at], &bits, size);
    } else if (dtype == DType::kF8E4M3) {
      out[at] = static_cast<std::byte>(FloatToF8E4M3(value));
    } else {
      std::memcpy(&out[at], &value, size);
    }
  }
  return out;
}

// Made once, in some 0.2 s: a case may take them dozens of times.
template <DType kType>
const std::vector<std::byte>& NormalsOf() {
  static const std::vector<std::byte> normals = MakeNormals(kType);
  return normals;
}
const std::vector<std::byte>& Normals(DType dtype) {
  if (dtype == DType::kBF16) return NormalsOf<DType::kBF16>();
  if (dtype == DType::kF8E4M3) return NormalsOf<DType::kF8E4M3>();
  CHECK(dtype == DType::kF32) << Info(dtype).name;
  return NormalsOf<DType::kF32>();
}

}  // namespace

GpuOperands::GpuOperands()
    : device_(MakeCudaDevice({.memory_fraction = kMemoryFraction}).value()),
      stream_(device_->NewStream()) {
  ReserveWorkspace(0);
}

void GpuOperands::ReserveWorkspace(int64_t bytes) {
  // One byte more: an empty buffer has an address too.
  workspace_ = std::make_unique<Workspace>(
      Buffer::Allocate(*device_, static_cast<size_t>(bytes) + 1).value());
}

std::byte* GpuOperands::Take(int64_t bytes) {
  buffers_.push_back(Buffer::Allocate(*device_, static_cast<size_t>(bytes)).value());
  return buffers_.back().data();
}

std::byte* GpuOperands::Zeros(int64_t bytes) {
  return Place(std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0}));
}

std::byte* GpuOperands::Random(int64_t bytes, DType dtype) {
  const std::vector<std::byte>& repeated = Normals(dtype);
  std::byte* to = Take(bytes);
  for (int64_t at = 0; at < bytes; at += kRepeated) {
    device_->Upload(to + at, repeated.data(), static_cast<size_t>(std::min(kRepeated, bytes - at)));
  }
  return to;
}

const ops::PackedMatrix* GpuOperands::Weights(DType dtype, int64_t n, int64_t k,
                                              ops::MatmulPrecision precision) {
  weights::DummyStore store(1);
  ops::MatrixPiece piece = ops::MatrixPiece::Whole(store.Get("weight", dtype, {n, k}));
  if (dtype == DType::kF8E4M3) {
    constexpr int32_t kBlock = 128;
    const Shape blocks{(n + kBlock - 1) / kBlock, (k + kBlock - 1) / kBlock};
    piece.scales = {store.Get("weight_scale_inv", DType::kF32, blocks), kBlock, kBlock};
  }
  matrices_.push_back(ops::PackMatrix(*device_, {&piece, 1}, precision).value());
  device_->FinishLoading();
  return &matrices_.back();
}

}  // namespace hayate::bench
