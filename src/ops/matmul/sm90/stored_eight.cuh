#pragma once
// Eight neighbouring weights of a stored row as floats, and the list of types that are stored so.
// Eight neighbours that start at a multiple of eight share a scale in every type, so the compiler
// decodes it once.

#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/stored_element.cuh"

namespace hayate::ops::sm90 {

// Elements 8 · `index` … of a row.
template <DType kType>
__device__ __forceinline__ Eight LoadStored(const uint8_t* row, int64_t index) {
  Eight eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    eight.v[i] = StoredElement<kType>(
        row, static_cast<int64_t>(static_cast<uint64_t>(index) * 8 | static_cast<uint64_t>(i)));
  }
  return eight;
}

template <DType kType>
struct DTypeTag {
  static constexpr DType kValue = kType;
};

// Calls visit(DTypeTag<type>) for the block types; false for any other.
template <typename Visit>
bool VisitBlockType(DType type, const Visit& visit) {
  switch (type) {
#define HAYATE_CASE(T)           \
  case DType::T:                 \
    visit(DTypeTag<DType::T>{}); \
    return true;
    HAYATE_CASE(kQ4_0)
    HAYATE_CASE(kQ4_1)
    HAYATE_CASE(kQ5_0)
    HAYATE_CASE(kQ5_1)
    HAYATE_CASE(kQ8_0)
    HAYATE_CASE(kIQ4_NL)
    HAYATE_CASE(kMXFP4)
    HAYATE_CASE(kQ2_K)
    HAYATE_CASE(kQ3_K)
    HAYATE_CASE(kQ4_K)
    HAYATE_CASE(kQ5_K)
    HAYATE_CASE(kQ6_K)
#undef HAYATE_CASE
    default:
      return false;
  }
}

}  // namespace hayate::ops::sm90
