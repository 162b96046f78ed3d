#include <gtest/gtest.h>

#include "ops/embedding/embedding.h"
#include "ops/matmul/testing/random_weights.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using namespace testing;

class EmbeddingGpu : public GpuTest {};

TEST_F(EmbeddingGpu, RowsOfEveryTypeAreThoseOfTheCpuToTheBit) {
  const std::vector<int32_t> ids = {4, 0, 4, 2, 6};
  const auto ids_array = ToDevice(ids);
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kQ4_0,
        DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4,
        DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    for (const int64_t width : {512, 4096, 577}) {
      if (IsBlockType(dtype) && width == 577) continue;
      const matmul::RandomWeights table(dtype, 7, width, static_cast<uint64_t>(dtype));
      const ConstTensorView host = table.view();
      const std::vector<std::byte> bytes(host.data, host.data + host.num_bytes());
      const auto device_table = ToDevice(bytes);
      const auto rows = static_cast<int64_t>(ids.size());
      std::vector<float> expected(ids.size() * static_cast<size_t>(width));
      Embedding({}, {.out = HostView(expected, rows), .ids = ids.data(), .table = host});
      const auto out = Poisoned<float>(expected.size());
      Embedding(stream_, {.out = out.View(DType::kF32, {rows, width}),
                          .ids = ids_array.data(),
                          .table = device_table.View(dtype, {7, width})});
      const std::vector<float> got = ToHost(out);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << Info(dtype).name << " " << width;
    }
  }
}

}  // namespace
}  // namespace hayate::ops
