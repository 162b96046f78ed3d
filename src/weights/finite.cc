#include "weights/finite.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/parallel.h"

namespace hayate::weights {
namespace {

// A float field repeated every `stride` bytes, `offset` bytes into each.
struct Field {
  enum Kind : uint8_t { kF32, kF16, kBf16, kE4M3, kE5M2, kE8M0, kE8M0OfE2M1 };
  Kind kind;
  int offset = 0;
};

struct Fields {
  Field items[2];
  int count;
};

// Where each dtype keeps values that can be NaN or infinite.
Fields FloatFields(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {{{Field::kF32}}, 1};
    case DType::kF16:
      return {{{Field::kF16}}, 1};
    case DType::kBF16:
      return {{{Field::kBf16}}, 1};
    case DType::kF8E4M3:
      return {{{Field::kE4M3}}, 1};
    case DType::kF8E5M2:
      return {{{Field::kE5M2}}, 1};
    case DType::kF8E8M0:
      return {{{Field::kE8M0}}, 1};
    case DType::kMXFP4:
      return {{{Field::kE8M0OfE2M1}}, 1};
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return {{{Field::kF16}}, 1};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {{{Field::kF16}, {Field::kF16, 2}}, 2};
    case DType::kQ2_K:
      return {{{Field::kF16, 80}, {Field::kF16, 82}}, 2};
    case DType::kQ3_K:
      return {{{Field::kF16, 108}}, 1};
    case DType::kQ6_K:
      return {{{Field::kF16, 208}}, 1};
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
    case DType::kF4E2M1:
      return {{}, 0};
  }
  return {{}, 0};
}

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // what one core looks through in one go

// Whether any of `count` fields, `stride` bytes apart, has (bits & mask) ≥ bad. No branch in the
// loop: it runs at the speed of memory where fields are dense.
template <typename Bits>
bool AnyMasked(const std::byte* at, int64_t count, int64_t stride, Bits mask, Bits bad) {
  bool any = false;
  const auto test = [&](int64_t offset) {
    Bits bits;
    std::memcpy(&bits, at + offset, sizeof(Bits));
    any |= (bits & mask) >= bad;
  };
  if (stride == sizeof(Bits)) {
    for (int64_t i = 0; i < count; ++i) test(i * static_cast<int64_t>(sizeof(Bits)));
  } else {
    for (int64_t i = 0; i < count; ++i) test(i * stride);
  }
  return any;
}

template <typename Bits>
std::optional<int64_t> FindMasked(const ConstTensorView& tensor, int field_offset, Bits mask,
                                  Bits bad) {
  const int64_t stride = Info(tensor.dtype).block_bytes;
  const int64_t count = tensor.num_bytes() / stride;
  std::atomic<int64_t> first_piece{count};  // the first field of the first piece that holds one
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / stride);
  ParallelPieces(count, piece, [&](int64_t begin, int64_t end) {
    const std::byte* at = tensor.data + begin * stride + field_offset;
    if (begin > first_piece || !AnyMasked(at, end - begin, stride, mask, bad)) return;
    int64_t seen = first_piece;
    while (begin < seen && !first_piece.compare_exchange_weak(seen, begin)) {
    }
  });
  for (int64_t i = first_piece; i < count; ++i) {
    const int64_t at = i * stride + field_offset;
    if (AnyMasked(tensor.data + at, 1, stride, mask, bad)) return at;
  }
  return std::nullopt;
}

// All ones in the exponent is NaN or infinity; E4M3FN and E8M0 have one NaN code. A scale of E2M1
// codes, which reach 6, overflows float from 2^126 (0xFD).
std::optional<int64_t> Find(const ConstTensorView& tensor, const Field& field) {
  const int at = field.offset;
  switch (field.kind) {
    case Field::kF32:
      return FindMasked<uint32_t>(tensor, at, 0x7F800000, 0x7F800000);
    case Field::kF16:
      return FindMasked<uint16_t>(tensor, at, 0x7C00, 0x7C00);
    case Field::kBf16:
      return FindMasked<uint16_t>(tensor, at, 0x7F80, 0x7F80);
    case Field::kE4M3:
      return FindMasked<uint8_t>(tensor, at, 0x7F, 0x7F);
    case Field::kE5M2:
      return FindMasked<uint8_t>(tensor, at, 0x7C, 0x7C);
    case Field::kE8M0:
      return FindMasked<uint8_t>(tensor, at, 0xFF, 0xFF);
    case Field::kE8M0OfE2M1:
      return FindMasked<uint8_t>(tensor, at, 0xFF, 0xFD);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> FindNonFinite(const ConstTensorView& tensor) {
  const Fields fields = FloatFields(tensor.dtype);
  std::optional<int64_t> first;
  for (int i = 0; i < fields.count; ++i) {
    const std::optional<int64_t> found = Find(tensor, fields.items[i]);
    if (found && (!first || *found < *first)) first = found;
  }
  return first;
}

}  // namespace hayate::weights
