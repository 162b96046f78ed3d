#include "weights/dummy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "weights/dequantize.h"

namespace hayate::weights {
namespace {

std::vector<std::byte> Fill(DType dtype, Shape shape, std::string_view name, uint64_t seed) {
  std::vector<std::byte> storage(
      static_cast<size_t>(TensorView{nullptr, dtype, shape}.num_bytes()));
  FillDummy({storage.data(), dtype, shape}, name, seed);
  return storage;
}

TEST(FillDummy, ValuesKeepTheSizeOfActivations) {
  const Shape shape{64, 1024};
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const bool is_weight = IsBlockType(dtype) || dtype <= DType::kF8E5M2;
    if (!is_weight) continue;
    const std::vector<std::byte> storage = Fill(dtype, shape, "w", 7);
    std::vector<float> values(static_cast<size_t>(shape.num_elements()));
    Dequantize(ConstTensorView(storage.data(), dtype, shape), values);
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += value;
      squares += double{value} * value;
    }
    const double mean = sum / static_cast<double>(values.size());
    const double sigma = std::sqrt(squares / static_cast<double>(values.size()) - mean * mean);
    // MXFP4 scales are powers of two, so its spread may be off by √2; symmetric integer codes of n
    // bits lie half a code, at most 0.44 σ (3 bits), below zero.
    EXPECT_NEAR(sigma * 32, 1.0, dtype == DType::kMXFP4 ? 0.42 : 0.05) << Info(dtype).name;
    EXPECT_LT(std::abs(mean), 0.25 * sigma) << Info(dtype).name;
  }
}

TEST(FillDummy, DependsOnSeedAndNameAlone) {
  const auto a = Fill(DType::kQ4_1, {4, 64}, "a", 1);
  EXPECT_EQ(a, Fill(DType::kQ4_1, {4, 64}, "a", 1));
  EXPECT_NE(a, Fill(DType::kQ4_1, {4, 64}, "b", 1));
  EXPECT_NE(a, Fill(DType::kQ4_1, {4, 64}, "a", 2));
}

TEST(FillDummy, NormsAreOne) {
  const auto storage = Fill(DType::kF32, {8}, "blk.0.attn_norm.weight", 1);
  float value;
  std::memcpy(&value, storage.data() + 28, sizeof(value));
  EXPECT_EQ(value, 1.0f);
}

TEST(DummyStore, MakesEachTensorOnce) {
  DummyStore store(3);
  const ConstTensorView first = store.Get("a", DType::kF32, {4, 4});
  EXPECT_EQ(store.Get("b", DType::kF32, {4, 4}).shape, (Shape{4, 4}));
  EXPECT_EQ(store.Get("a", DType::kF32, {4, 4}).data, first.data);
}

TEST(DummyStore, LargeTensorsRepeatValuesAndCostNoMemory) {
  DummyStore store(3);
  // 64 GiB, of which only the ends are looked at.
  const Shape shape{int64_t{1} << 23, 4096};
  const ConstTensorView large = store.Get("large", DType::kBF16, shape);
  EXPECT_EQ(store.Get("large", DType::kBF16, shape).data, large.data);
  const ConstTensorView last_row(large.data + large.num_bytes() - 8192, DType::kBF16, {1, 4096});
  std::vector<float> values(4096);
  Dequantize(last_row, values);
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / 4096) * 64, 1.0, 0.1);

  const ConstTensorView blocks = store.Get("blocks", DType::kQ6_K, {1 << 14, 4096});
  const ConstTensorView last_blocks(blocks.data + blocks.num_bytes() - 16 * 210, DType::kQ6_K,
                                    {1, 4096});
  Dequantize(last_blocks, values);
  squares = 0;
  for (const float value : values) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / 4096) * 64, 1.0, 0.1);
}

}  // namespace
}  // namespace hayate::weights
