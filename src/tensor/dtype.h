#pragma once
// Element types: plain numbers, and the block-quantised types of GGUF. A block type stores
// `block_elements` consecutive elements of a row in `block_bytes` bytes, laid out as the GGUF
// specification of that type says (scales inside the block). FP8 and FP4 checkpoints keep their
// scales in tensors of their own: block_scales.h.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hayate {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kF4E2M1,  // two to a byte, the even element in the low half: ±{0, 0.5, 1, 1.5, 2, 3, 4, 6}
  // GGUF blocks of 32 elements.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kIQ4_NL,
  kMXFP4,
  // GGUF super-blocks of 256 elements.
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
inline constexpr int kNumDTypes = static_cast<int>(DType::kQ6_K) + 1;

struct DTypeInfo {
  std::string_view name;  // "F32", "Q4_1": as GGUF and safetensors spell it
  int block_elements;     // 1 for plain types, 2 for F4: what a row is a multiple of
  int block_bytes;
};

const DTypeInfo& Info(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

// Whether the elements come in blocks that hold their scales.
inline bool IsBlockType(DType dtype) { return dtype >= DType::kQ4_0; }
// Bytes of `elements` consecutive elements of one row; a multiple of the block size.
int64_t RowBytes(DType dtype, int64_t elements);

}  // namespace hayate
