#include "weights/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tensor/float16.h"
#include "weights/checkpoint.h"

namespace hayate::weights {
namespace {

// The golden file holds random blocks and their values by the numpy code of the PyPI package gguf.
TEST(Dequantize, EveryBlockTypeEqualsTheGgufPackageExactly) {
  const auto golden = Checkpoint::Open("tests/golden/weights/dequantize.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().ToString();
  int num_types = 0;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!IsBlockType(dtype)) continue;
    ++num_types;
    const std::string name(Info(dtype).name);
    const auto blocks = golden->Tensor(name + ".blocks");
    const auto expected = golden->Tensor(name + ".values");
    ASSERT_TRUE(blocks.ok() && expected.ok()) << name;
    const int64_t rows = blocks->shape[0];
    ASSERT_EQ(blocks->shape[1], Info(dtype).block_bytes) << name;
    const ConstTensorView tensor(blocks->data, dtype, {rows, Info(dtype).block_elements});
    std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
    Dequantize(tensor, values);
    for (size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(values[k], expected->as<float>()[k]) << name << " element " << k;
    }
  }
  EXPECT_EQ(num_types, 12);
}

template <typename T>
std::vector<float> Row(DType dtype, const std::vector<T>& stored) {
  std::vector<float> out(stored.size());
  DequantizeRow(dtype, reinterpret_cast<const std::byte*>(stored.data()),
                static_cast<int64_t>(stored.size()), out.data());
  return out;
}

TEST(Dequantize, PlainTypesBecomeTheirValues) {
  EXPECT_EQ(Row<float>(DType::kF32, {1.5f, -0.0f}), (std::vector<float>{1.5f, 0.0f}));
  EXPECT_EQ(Row<uint16_t>(DType::kF16, {0x3C00, 0xC000}), (std::vector<float>{1, -2}));
  EXPECT_EQ(Row<uint16_t>(DType::kBF16, {0x3F80, 0xC000}), (std::vector<float>{1, -2}));
  EXPECT_EQ(Row<uint8_t>(DType::kF8E4M3, {0x38, 0xFE}), (std::vector<float>{1, -448}));
  EXPECT_EQ(Row<uint8_t>(DType::kF8E5M2, {0x3C, 0xC0}), (std::vector<float>{1, -2}));
  EXPECT_EQ(Row<uint8_t>(DType::kF8E8M0, {127, 130}), (std::vector<float>{1, 8}));
  EXPECT_EQ(Row<int8_t>(DType::kI8, {-128, 127}), (std::vector<float>{-128, 127}));
  EXPECT_EQ(Row<uint8_t>(DType::kU8, {0, 255}), (std::vector<float>{0, 255}));
  EXPECT_EQ(Row<int16_t>(DType::kI16, {-5, 300}), (std::vector<float>{-5, 300}));
  EXPECT_EQ(Row<int32_t>(DType::kI32, {-5, 1 << 20}), (std::vector<float>{-5, 1048576}));
  EXPECT_EQ(Row<int64_t>(DType::kI64, {-5, int64_t{1} << 40}), (std::vector<float>{-5, 0x1p40f}));
  EXPECT_EQ(Row<uint8_t>(DType::kBool, {0, 2}), (std::vector<float>{0, 1}));
}

TEST(Dequantize, RowsNeedNoAlignment) {
  std::vector<std::byte> storage(1 + 34);
  storage[1] = std::byte{0x00};
  storage[2] = std::byte{0x3C};  // half 1.0
  for (int i = 0; i < 32; ++i) storage[static_cast<size_t>(3 + i)] = static_cast<std::byte>(i - 16);
  std::vector<float> out(32);
  DequantizeRow(DType::kQ8_0, storage.data() + 1, 32, out.data());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], static_cast<float>(i - 16));
}

}  // namespace
}  // namespace hayate::weights
