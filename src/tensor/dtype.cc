#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace hayate {
namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kInfos = {{
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"F8_E4M3", 1, 1},
    {"F8_E5M2", 1, 1},  {"F8_E8M0", 1, 1},  {"I8", 1, 1},       {"U8", 1, 1},
    {"I16", 1, 2},      {"I32", 1, 4},      {"I64", 1, 8},      {"BOOL", 1, 1},
    {"F4", 2, 1},       {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},   {"Q8_0", 32, 34},   {"IQ4_NL", 32, 18}, {"MXFP4", 32, 17},
    {"Q2_K", 256, 84},  {"Q3_K", 256, 110}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
}};

}  // namespace

const DTypeInfo& Info(DType dtype) { return kInfos[static_cast<size_t>(dtype)]; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = Info(dtype);
  CHECK_EQ(elements % info.block_elements, 0) << info.name;
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace hayate
