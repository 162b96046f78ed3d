#include "weights/dummy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "tensor/float16.h"

namespace hayate::weights {
namespace {

// FNV-1a: a tensor's values depend on its name the same way on every platform.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  }
  return hash;
}

// Near normal with mean 0 and standard deviation 1: four uniform bytes have a sum of mean 510 and
// variance 4 (256² − 1) / 12.
float NearNormal(uint32_t bits) {
  const uint32_t sum = (bits & 0xFF) + (bits >> 8 & 0xFF) + (bits >> 16 & 0xFF) + (bits >> 24);
  return (static_cast<float>(sum) - 510.0f) * (1.0f / 147.8009f);
}

void Put16(std::byte* to, uint16_t bits) { std::memcpy(to, &bits, sizeof(bits)); }
void PutHalf(std::byte* to, float value) { Put16(to, FloatToF16(value)); }

// Large tensors are filled by all cores, in chunks with random numbers of their own, so that the
// values do not depend on how many cores there are.
constexpr int64_t kChunk = int64_t{1} << 20;  // elements

template <typename Fill>  // void(int64_t begin, int64_t end, Rng&)
void ForChunks(int64_t count, uint64_t seed, Fill fill) {
  ParallelPieces(count, kChunk, [&](int64_t begin, int64_t end) {
    Rng rng(seed + static_cast<uint64_t>(begin / kChunk) * 0x9E3779B97F4A7C15u);
    fill(begin, end, rng);
  });
}

template <typename T, typename Encode>
void FillWith(TensorView out, uint64_t seed, Encode encode) {
  ForChunks(out.shape.num_elements(), seed, [&](int64_t begin, int64_t end, Rng& rng) {
    for (int64_t i = begin; i < end; ++i) {
      const T value = encode(NearNormal(rng.NextU32()));
      std::memcpy(out.data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  });
}

void FillBytes(TensorView out, uint64_t seed) {
  ForChunks(out.num_bytes(), seed, [&](int64_t begin, int64_t end, Rng& rng) {
    for (int64_t at = begin; at < end; at += 4) {
      const uint32_t bits = rng.NextU32();
      std::memcpy(out.data + at, &bits, static_cast<size_t>(std::min<int64_t>(4, end - at)));
    }
  });
}

void FillPlain(TensorView out, uint64_t seed, float sigma) {
  const auto small = [](float value) { return static_cast<int>(std::lround(value * 2)); };
  switch (out.dtype) {
    case DType::kF32:
      return FillWith<float>(out, seed, [&](float v) { return v * sigma; });
    case DType::kF16:
      return FillWith<uint16_t>(out, seed, [&](float v) { return FloatToF16(v * sigma); });
    case DType::kBF16:
      return FillWith<uint16_t>(out, seed, [&](float v) { return FloatToBf16(v * sigma); });
    case DType::kF8E4M3:
      return FillWith<uint8_t>(out, seed, [&](float v) { return FloatToF8E4M3(v * sigma); });
    case DType::kF8E5M2:  // the upper byte of a half, rounded
      return FillWith<uint8_t>(out, seed, [&](float v) {
        return static_cast<uint8_t>((FloatToF16(v * sigma) + 0x80) >> 8);
      });
    case DType::kF8E8M0:  // a scale of one
      return FillWith<uint8_t>(out, seed, [](float) { return uint8_t{127}; });
    case DType::kI8:
    case DType::kU8:
      return FillWith<uint8_t>(out, seed, [&](float v) { return static_cast<uint8_t>(small(v)); });
    case DType::kI16:
      return FillWith<int16_t>(out, seed, [&](float v) { return static_cast<int16_t>(small(v)); });
    case DType::kI32:  // ids, 0 to 7
      return FillWith<int32_t>(out, seed, [&](float v) { return int32_t{std::abs(small(v))}; });
    case DType::kI64:
      return FillWith<int64_t>(out, seed, [&](float v) { return int64_t{std::abs(small(v))}; });
    case DType::kBool:
      return FillWith<uint8_t>(out, seed, [](float v) { return uint8_t{v > 0}; });
    case DType::kF4E2M1:  // uniform codes; their scales, a tensor of their own, set the size
      return FillBytes(out, seed);
    default:
      CHECK(false) << Info(out.dtype).name;
  }
}

// Scales that give uniform random codes mean 0 (or half a code below) and standard deviation sigma.
// Uniform codes of n bits spread by √((4ⁿ − 1) / 12): 1.118, 2.291, 4.610, 9.233, 18.47, 73.90.
void SetScales(DType dtype, std::byte* block, float sigma) {
  const auto fill = [&](int begin, int end, int byte) {
    for (int i = begin; i < end; ++i) block[i] = static_cast<std::byte>(byte);
  };
  switch (dtype) {
    case DType::kQ4_0:
      return PutHalf(block, sigma / 4.610f);
    case DType::kQ4_1:
      return PutHalf(block, sigma / 4.610f), PutHalf(block + 2, -7.5f * sigma / 4.610f);
    case DType::kQ5_0:
      return PutHalf(block, sigma / 9.233f);
    case DType::kQ5_1:
      return PutHalf(block, sigma / 9.233f), PutHalf(block + 2, -15.5f * sigma / 9.233f);
    case DType::kQ8_0:
      return PutHalf(block, sigma / 73.90f);
    case DType::kIQ4_NL:
      return PutHalf(block, sigma / 67.18f);
    case DType::kMXFP4: {  // E2M1 codes spread by 2.926; the scale is the nearest power of two
      const int exponent = static_cast<int>(std::lround(std::log2(sigma / 2.926f)));
      return fill(0, 1, 127 + exponent);
    }
    case DType::kQ2_K:  // scale 8, min 12 = 8 × the mean code 1.5
      fill(0, 16, 8 | 12 << 4);
      return PutHalf(block + 80, sigma / (8 * 1.118f)), PutHalf(block + 82, sigma / (8 * 1.118f));
    case DType::kQ3_K:  // all six-bit scales 0b110000 = 48, which means 16
      fill(96, 104, 0);
      fill(104, 108, 0xFF);
      return PutHalf(block + 108, sigma / (16 * 2.291f));
    case DType::kQ4_K:    // scale 8, min 60 = 8 × 7.5
    case DType::kQ5_K: {  // scale 4, min 62 = 4 × 15.5
      const int scale = dtype == DType::kQ4_K ? 8 : 4, min = dtype == DType::kQ4_K ? 60 : 62;
      const float d =
          sigma / (static_cast<float>(scale) * (dtype == DType::kQ4_K ? 4.610f : 9.233f));
      fill(4, 8, scale | scale >> 4 << 6);
      fill(8, 12, min | min >> 4 << 6);
      fill(12, 16, (scale & 0xF) | (min & 0xF) << 4);
      return PutHalf(block, d), PutHalf(block + 2, d);
    }
    case DType::kQ6_K:
      fill(192, 208, 16);
      return PutHalf(block + 208, sigma / (16 * 18.47f));
    default:
      CHECK(false) << Info(dtype).name;
  }
}

void FillBlocks(TensorView out, uint64_t seed, float sigma) {
  const int64_t bytes = out.num_bytes();
  FillBytes(out, seed);
  for (int64_t at = 0; at < bytes; at += Info(out.dtype).block_bytes) {
    SetScales(out.dtype, out.data + at, sigma);
  }
}

float SigmaOf(int64_t cols) { return 1.0f / std::sqrt(static_cast<float>(cols)); }

void FillValues(TensorView out, uint64_t seed, float sigma) {
  IsBlockType(out.dtype) ? FillBlocks(out, seed, sigma) : FillPlain(out, seed, sigma);
}

bool IsNorm(const TensorView& out, std::string_view name) {
  return out.shape.rank() == 1 && name.find("norm") != std::string_view::npos;
}
// Scales of a quantised matrix, in a tensor of their own.
bool IsScale(std::string_view name) {
  return name.ends_with("scale") || name.ends_with("scale_inv") || name.ends_with("scales");
}

void FillOnes(TensorView out) {
  const uint32_t f32 = std::bit_cast<uint32_t>(1.0f);
  const uint16_t f16 = FloatToF16(1.0f), bf16 = FloatToBf16(1.0f);
  for (int64_t i = 0; i < out.shape.num_elements(); ++i) {
    if (out.dtype == DType::kF32) std::memcpy(out.data + 4 * i, &f32, sizeof(f32));
    if (out.dtype == DType::kF16) Put16(out.data + 2 * i, f16);
    if (out.dtype == DType::kBF16) Put16(out.data + 2 * i, bf16);
  }
}

// Whole blocks and whole pages, at least kPieceBytes.
size_t PieceBytes(DType dtype) {
  constexpr size_t kPieceBytes = size_t{8} << 20;
  const size_t unit =
      std::lcm(static_cast<size_t>(Info(dtype).block_bytes), RepeatedMemory::kGranule);
  return AlignUp(kPieceBytes, unit);
}

}  // namespace

void FillDummy(TensorView out, std::string_view name, uint64_t seed) {
  if (out.shape.num_elements() == 0) return;
  const bool float16_or_32 =
      out.dtype == DType::kF32 || out.dtype == DType::kF16 || out.dtype == DType::kBF16;
  if (IsScale(name) && out.dtype == DType::kU8) {  // exponents of MXFP4: E2M1 codes spread by 3
    std::fill_n(out.data, out.num_bytes(), std::byte{120});
    return;
  }
  if ((IsNorm(out, name) || IsScale(name)) && float16_or_32) return FillOnes(out);
  FillValues(out, seed ^ HashName(name), SigmaOf(out.cols()));
}

const RepeatedMemory& DummyStore::Piece(DType dtype, int64_t cols) {
  const auto key = std::pair(dtype, cols);
  const auto found = pieces_.find(key);
  if (found != pieces_.end()) return found->second;
  RepeatedMemory memory(PieceBytes(dtype));
  const int64_t elements =
      static_cast<int64_t>(memory.size()) / Info(dtype).block_bytes * Info(dtype).block_elements;
  FillValues({memory.data(), dtype, Shape{elements}}, seed_, SigmaOf(cols));
  return pieces_.emplace(key, std::move(memory)).first->second;
}

ConstTensorView DummyStore::Get(std::string_view name, DType dtype, const Shape& shape) {
  const std::lock_guard lock(mutex_);
  const auto known = small_.find(name);
  if (known != small_.end()) return ConstTensorView(known->second.get(), dtype, shape);
  const auto mapped = large_.find(name);
  if (mapped != large_.end()) return ConstTensorView(mapped->second.data(), dtype, shape);

  const TensorView sizes{nullptr, dtype, shape};
  const size_t bytes = shape.num_elements() == 0 ? 0 : static_cast<size_t>(sizes.num_bytes());
  if (bytes <= PieceBytes(dtype) || IsScale(name)) {
    auto storage = std::make_unique_for_overwrite<std::byte[]>(bytes);
    FillDummy({storage.get(), dtype, shape}, name, seed_);
    const auto* data = small_.emplace(name, std::move(storage)).first->second.get();
    return ConstTensorView(data, dtype, shape);
  }
  const auto view = large_.emplace(name, Piece(dtype, sizes.cols()).Repeat(bytes)).first;
  return ConstTensorView(view->second.data(), dtype, shape);
}

}  // namespace hayate::weights
