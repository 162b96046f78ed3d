#include <gtest/gtest.h>

#include <cmath>

#include "ops/gather/copy_columns.h"
#include "ops/gather/gather_rows.h"
#include "ops/testing/gpu.h"
#include "ops/zero/zero.h"

namespace hayate::ops {
namespace {

using namespace testing;

class GatherRowsGpu : public GpuTest {};

TEST_F(GatherRowsGpu, TakesRowsByIndex) {
  const std::vector<int32_t> index = {6, 0, 6, 3};
  const auto index_array = ToDevice(index);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t width : {1, 3, 8, 576, 4096, 5001}) {
      constexpr int64_t kRows = 7;
      const std::vector<float> from =
          Rounded(RandomNormals(static_cast<size_t>(kRows * width), 1), type);
      const auto from_array = ToDevice(from, type);
      const auto out = Poisoned(index.size() * static_cast<size_t>(width), type);
      GatherRows(stream_, {.out = out.View(type, {4, width}),
                           .from = from_array.View(type, {kRows, width}),
                           .index = index_array.data()});
      const std::vector<float> got = FloatsToHost(out, type);
      for (size_t i = 0; i < index.size(); ++i) {
        EXPECT_TRUE(std::equal(from.begin() + index[i] * width,
                               from.begin() + (index[i] + 1) * width,
                               got.begin() + static_cast<int64_t>(i) * width))
            << width << " row " << i;
      }
    }
  }
}

TEST_F(GatherRowsGpu, CopiesColumnsBetweenTypesAndStrides) {
  constexpr int64_t kRows = 7, kCopied = 4;
  const std::vector<int32_t> index = {6, 0, 6, 3};
  const auto index_array = ToDevice(index);
  for (const DType from_type : {DType::kF32, DType::kBF16}) {
    for (const DType to_type : {DType::kF32, DType::kBF16}) {
      for (const int64_t width : {1, 5, 256, 1031}) {
        const int64_t from_stride = width + 3, to_stride = 2 * width;
        const std::vector<float> from =
            Rounded(RandomNormals(static_cast<size_t>(kRows * from_stride), 1), from_type);
        const auto from_array = ToDevice(from, from_type);
        for (const bool indexed : {true, false}) {
          const auto out = Poisoned(static_cast<size_t>(kCopied * to_stride), to_type);
          CopyColumns(stream_, {.out = out.View(to_type, {kCopied, width}),
                                .out_row_stride = to_stride,
                                .from = from_array.View(from_type, {kRows, width}),
                                .from_row_stride = from_stride,
                                .index = indexed ? index_array.data() : nullptr});
          const std::vector<float> got = FloatsToHost(out, to_type);
          for (int64_t i = 0; i < kCopied; ++i) {
            const int64_t row = indexed ? index[static_cast<size_t>(i)] : i;
            const auto first = from.begin() + row * from_stride;
            const std::vector<float> want = Rounded({first, first + width}, to_type);
            const auto begin = got.begin() + i * to_stride;
            EXPECT_TRUE(std::equal(want.begin(), want.end(), begin)) << width << " row " << i;
            // The columns beside are left alone.
            EXPECT_TRUE(std::isnan(begin[width])) << width << " row " << i;
          }
        }
      }
    }
  }
}

TEST_F(GatherRowsGpu, ZeroClearsEveryByte) {
  const auto array = Poisoned<float>(1001);
  Zero(stream_, array.View(DType::kF32, {1001}));
  EXPECT_EQ(ToHost(array), std::vector<float>(1001, 0.0f));
}

}  // namespace
}  // namespace hayate::ops
