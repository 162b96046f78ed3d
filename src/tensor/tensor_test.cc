#include <gtest/gtest.h>

#include <cmath>

#include "tensor/buffer.h"
#include "tensor/cpu_features.h"
#include "tensor/float16.h"
#include "tensor/workspace.h"

namespace hayate {
namespace {

TEST(TensorView, ATensorWithoutColumnsHasRowsAndNoBytes) {
  const TensorView empty{nullptr, DType::kF32, Shape{3, 2, 0}};
  EXPECT_EQ(empty.rows(), 6);
  EXPECT_EQ(empty.num_bytes(), 0);
  EXPECT_EQ((TensorView{nullptr, DType::kF32, Shape{4}}.rows()), 1);
}

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToF16(value), half) << bits;
  }
  EXPECT_EQ(FloatToF16(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7C00);
  EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(NAN))));
}

TEST(Float16, HalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = F16ToFloat(static_cast<uint16_t>(bits));
    const float high = F16ToFloat(static_cast<uint16_t>(bits + 1));
    const uint16_t even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(FloatToF16(low + (high - low) / 2), even) << bits;
    ASSERT_EQ(FloatToF16(low + (high - low) * 0.75f), bits + 1) << bits;
  }
}

TEST(Float16, EveryF8E4M3SurvivesTheRoundTripAndSaturates) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float value = F8E4M3ToFloat(static_cast<uint8_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToF8E4M3(value), bits);
  }
  EXPECT_EQ(F8E4M3ToFloat(FloatToF8E4M3(1e9f)), 448.0f);
  EXPECT_EQ(F8E4M3ToFloat(FloatToF8E4M3(17.0f)), 16.0f);  // tie: to even
  EXPECT_EQ(F8E8M0ToFloat(127), 1.0f);
  EXPECT_EQ(F8E8M0ToFloat(0), 0x1p-127f);
}

TEST(TensorView, SlicesRowsOfBlockTypes) {
  std::byte storage[4 * 40];
  const TensorView view{storage, DType::kQ4_1, {4, 64}};
  EXPECT_EQ(view.num_bytes(), 160);
  EXPECT_EQ(view.Slice(1, 3).data, storage + 40);
  EXPECT_EQ(view.Slice(1, 3).shape, (Shape{2, 64}));
}

TEST(Workspace, TakesAlignedPiecesAndGivesThemBack) {
  const auto device = MakeCpuDevice(0);
  Workspace workspace(Buffer::Allocate(*device, 4096).value());
  const TensorView a = workspace.Take(DType::kF32, {3});
  const size_t mark = workspace.mark();
  const TensorView b = workspace.Take(DType::kF32, {100});
  EXPECT_EQ((b.data - a.data) % 256, 0);
  workspace.ResetTo(mark);
  EXPECT_EQ(workspace.Take(DType::kF32, {1}).data, b.data);
}

TEST(CpuFeatures, HasAName) { EXPECT_FALSE(ToString(DetectCpuFeatures()).empty()); }

}  // namespace
}  // namespace hayate
