#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "ops/matmul/matmul.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

// What the exact matrix product holds for a table is the table's meaning, for every dtype it knows.
TEST(Embedding, RowsEqualThoseOfThePreparedMatrixForEveryDtype) {
  constexpr int64_t kRows = 5, kWidth = 512;
  auto device = MakeCpuDevice(0);
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kQ4_0, DType::kQ4_1,
        DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4, DType::kQ2_K,
        DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    Rng rng(static_cast<uint64_t>(dtype));
    // One byte in front: mapped tensors are not aligned. Bytes stay below 0x40, so no scale or
    // value is infinite or NaN.
    std::vector<std::byte> bytes(static_cast<size_t>(kRows * RowBytes(dtype, kWidth)) + 1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Below(0x40));
    const ConstTensorView table(bytes.data() + 1, dtype, Shape{kRows, kWidth});
    const MatrixPiece piece = MatrixPiece::Whole(table);
    const PackedMatrix packed =
        PackMatrix(*device, std::span(&piece, 1), MatmulPrecision::kExact).value();

    const std::vector<int32_t> ids = {4, 0, 4, 2};
    std::vector<float> out(ids.size() * kWidth), expected(kWidth);
    Embedding({}, {TensorView{reinterpret_cast<std::byte*>(out.data()), DType::kF32,
                              Shape{static_cast<int64_t>(ids.size()), kWidth}},
                   ids.data(), table});
    for (size_t t = 0; t < ids.size(); ++t) {
      UnpackRow(packed, ids[t], expected.data());
      EXPECT_EQ(std::memcmp(expected.data(), out.data() + t * kWidth, kWidth * sizeof(float)), 0)
          << Info(dtype).name << " row " << ids[t];
    }
  }
}

TEST(Embedding, PlainFloatsAreConvertedExactly) {
  const std::vector<float> values = {0.5f, -2.0f, 65504.0f, 6.1035156e-5f};
  std::vector<uint16_t> table;
  for (const float value : values) table.push_back(FloatToF16(value));
  std::vector<float> out(2);
  const int32_t id = 1;
  Embedding({},
            {TensorView{reinterpret_cast<std::byte*>(out.data()), DType::kF32, Shape{1, 2}}, &id,
             ConstTensorView(reinterpret_cast<const std::byte*>(table.data()), DType::kF16,
                             Shape{2, 2})});
  EXPECT_EQ(out, (std::vector<float>{65504.0f, 6.1035156e-5f}));
}

}  // namespace
}  // namespace hayate::ops
