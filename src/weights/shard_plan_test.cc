#include "weights/shard_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "weights/dequantize.h"
#include "weights/dummy.h"

namespace hayate::weights {
namespace {

TEST(SplitEvenly, PiecesCoverTheAxisAndDifferByAtMostOneMultiple) {
  for (const int64_t multiple : {1, 32, 64}) {
    for (int64_t units = 0; units <= 20; ++units) {
      for (int ranks = 1; ranks <= 9; ++ranks) {
        int64_t at = 0, smallest = units * multiple, largest = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Partition part = *SplitEvenly({units * multiple, ranks, multiple}, rank);
          ASSERT_EQ(part.begin, at);
          ASSERT_EQ(part.size() % multiple, 0);
          at = part.end;
          smallest = std::min(smallest, part.size());
          largest = std::max(largest, part.size());
        }
        ASSERT_EQ(at, units * multiple);
        ASSERT_LE(largest - smallest, multiple);
      }
    }
  }
  EXPECT_FALSE(SplitEvenly({100, 2, 32}, 0).ok());
  EXPECT_FALSE(SplitEvenly({-32, 2, 32}, 0).ok());
}

class Matrix {
 public:
  Matrix(DType dtype, Shape shape)
      : storage_(static_cast<size_t>(TensorView{nullptr, dtype, shape}.num_bytes())),
        view_{storage_.data(), dtype, shape} {}
  TensorView view() const { return view_; }
  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(view_.shape.num_elements()));
    Dequantize(view_, out);
    return out;
  }

 private:
  std::vector<std::byte> storage_;
  TensorView view_;
};

TEST(CopyShard, PartsHoldTheElementsOfTheWholeForEveryDtype) {
  Rng rng(1);
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const int64_t block = Info(dtype).block_elements;
    const int64_t rows = 7, cols = 5 * block;
    const Matrix whole(dtype, {rows, cols});
    FillDummy(whole.view(), "matrix", 3);
    const std::vector<float> expected = whole.values();
    for (const ShardAxis axis : {ShardAxis::kNone, ShardAxis::kRows, ShardAxis::kCols}) {
      const int64_t units = axis == ShardAxis::kRows ? rows : 5;
      const int64_t unit = axis == ShardAxis::kRows ? 1 : block;
      const int64_t begin = rng.Below(static_cast<uint32_t>(units));
      const int64_t end = begin + 1 + rng.Below(static_cast<uint32_t>(units - begin));
      const ShardSpec spec{axis, {begin * unit, end * unit}};
      const Shape shape = *ShardShape(whole.view(), spec);
      const Matrix part(dtype, shape);
      ASSERT_TRUE(CopyShard(whole.view(), spec, part.view()).ok());
      const std::vector<float> values = part.values();
      const int64_t row0 = axis == ShardAxis::kRows ? begin : 0;
      const int64_t col0 = axis == ShardAxis::kCols ? begin * block : 0;
      for (int64_t r = 0; r < shape[0]; ++r) {
        for (int64_t c = 0; c < shape[1]; ++c) {
          ASSERT_EQ(values[static_cast<size_t>(r * shape[1] + c)],
                    expected[static_cast<size_t>((row0 + r) * cols + col0 + c)])
              << Info(dtype).name;
        }
      }
    }
  }
}

TEST(CopyShard, ExpertTensorsSplitAlongTheirOutermostAndInnermostAxes) {
  const Matrix whole(DType::kF32, {3, 4, 6});
  FillDummy(whole.view(), "experts", 1);
  const Matrix expert(DType::kF32, {1, 4, 6}), half(DType::kF32, {3, 4, 3});
  ASSERT_TRUE(CopyShard(whole.view(), {ShardAxis::kRows, {2, 3}}, expert.view()).ok());
  EXPECT_EQ(std::memcmp(expert.view().data, whole.view().data + 2 * 24 * 4, 24 * 4), 0);
  ASSERT_TRUE(CopyShard(whole.view(), {ShardAxis::kCols, {3, 6}}, half.view()).ok());
  EXPECT_EQ(half.values()[3], whole.values()[6 + 3]);
}

TEST(RowShard, IsAViewWithoutACopy) {
  const Matrix whole(DType::kQ4_1, {8, 64});
  const ConstTensorView part = RowShard(whole.view(), {ShardAxis::kRows, {2, 5}});
  EXPECT_EQ(part.data, whole.view().data + 2 * 40);
  EXPECT_EQ(part.shape, (Shape{3, 64}));
  const Matrix bias(DType::kF32, {8});
  EXPECT_EQ(RowShard(bias.view(), {ShardAxis::kRows, {3, 8}}).data, bias.view().data + 12);
}

TEST(ShardShape, RangesOutsideTheTensorOrInsideABlockAreRefused) {
  const Matrix whole(DType::kQ4_1, {8, 64});
  for (const ShardSpec& spec :
       {ShardSpec{ShardAxis::kRows, {0, 9}}, ShardSpec{ShardAxis::kRows, {-1, 2}},
        ShardSpec{ShardAxis::kRows, {5, 4}}, ShardSpec{ShardAxis::kCols, {0, 96}},
        ShardSpec{ShardAxis::kCols, {16, 32}}, ShardSpec{ShardAxis::kCols, {0, 48}}}) {
    EXPECT_EQ(ShardShape(whole.view(), spec).status().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(*ShardShape(whole.view(), {ShardAxis::kRows, {3, 3}}), (Shape{0, 64}));
  const Matrix small(DType::kQ4_1, {1, 64});
  EXPECT_FALSE(CopyShard(whole.view(), {ShardAxis::kRows, {0, 2}}, small.view()).ok());
}

}  // namespace
}  // namespace hayate::weights
