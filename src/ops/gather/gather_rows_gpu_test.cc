#include <gtest/gtest.h>

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

TEST_F(GatherRowsGpu, ZeroClearsEveryByte) {
  const auto array = Poisoned<float>(1001);
  Zero(stream_, array.View(DType::kF32, {1001}));
  EXPECT_EQ(ToHost(array), std::vector<float>(1001, 0.0f));
}

}  // namespace
}  // namespace hayate::ops
