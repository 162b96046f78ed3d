#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/rng.h"
#include "bench/op_cases.h"
#include "ops/matmul/matmul.h"
#include "tensor/cpu_features.h"
#include "weights/dummy.h"

namespace hayate::bench {
namespace {

struct Shape {
  const char* name;
  DType dtype;
  int64_t n;
  int64_t k;
  std::vector<int64_t> tokens;
};

const std::vector<int64_t> kAllTokens = {1, 2, 4, 8, 128, 512};
// A step of the 8B model takes long: the ends of the range are enough.
const std::vector<int64_t> kFewTokens = {1, 8, 128};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kBF16}) {
    shapes.push_back({"qkv", dtype, 960, 576, kAllTokens});
    shapes.push_back({"gate_up", dtype, 3072, 576, kAllTokens});
    shapes.push_back({"down", dtype, 576, 1536, kAllTokens});
  }
  shapes.push_back({"head", DType::kQ8_0, 49152, 576, {1, 2, 4, 8}});
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kBF16}) {
    shapes.push_back({"8b-qkv", dtype, 6144, 4096, kFewTokens});
  }
  return shapes;
}

// What the device multiplies in, in fast mode.
OpArithmetic ArithmeticOf(DType dtype) {
  if (IsBlockType(dtype)) return OpArithmetic::kInt8;
  const bool bf16_dot = DetectCpuFeatures().avx512_bf16 && dtype == DType::kBF16;
  return bf16_dot ? OpArithmetic::kBf16 : OpArithmetic::kFp32;
}

struct MatmulOperands {
  std::unique_ptr<Device> device = MakeCpuDevice(0);
  Stream stream{device.get()};
  std::vector<ops::PackedMatrix> copies;
  std::vector<float> x, out;
  std::unique_ptr<Workspace> workspace;
  size_t next = 0;
};

ops::PackedMatrix Copy(Device& device, const ops::PackedMatrix& from) {
  ops::PackedMatrix copy{from.n, from.k, from.source_dtype, from.parts, {}};
  copy.storage = Buffer::Allocate(device, from.storage.size()).value();
  std::memcpy(copy.storage.data(), from.storage.data(), from.storage.size());
  return copy;
}

OpCase MakeMatmul(const Shape& shape, int64_t tokens) {
  auto operands = std::make_shared<MatmulOperands>();
  MatmulOperands& o = *operands;
  std::vector<std::byte> weights(static_cast<size_t>(shape.n * RowBytes(shape.dtype, shape.k)));
  const TensorView view{weights.data(), shape.dtype, {shape.n, shape.k}};
  weights::FillDummy(view, "weight", 1);
  const ops::MatrixPiece piece = ops::MatrixPiece::Whole(view);
  o.copies.push_back(ops::PackMatrix(*o.device, {&piece, 1}, ops::MatmulPrecision::kFast).value());
  const auto bytes = static_cast<int64_t>(o.copies[0].storage.size());
  while (static_cast<int64_t>(o.copies.size()) * bytes < ColdBytes()) {
    o.copies.push_back(Copy(*o.device, o.copies[0]));
  }
  Rng rng(2);
  o.x.resize(static_cast<size_t>(tokens * shape.k));
  for (float& value : o.x) value = rng.NextNormal();
  o.out.resize(static_cast<size_t>(tokens * shape.n));
  const int64_t scratch = ops::MatmulWorkspaceBytes(tokens, shape.k);
  o.workspace = std::make_unique<Workspace>(
      Buffer::Allocate(*o.device, static_cast<size_t>(scratch)).value());
  OpCase result;
  result.cold_bytes = static_cast<double>(bytes);
  result.flop = 2.0 * static_cast<double>(tokens * shape.n) * static_cast<double>(shape.k);
  result.arithmetic = ArithmeticOf(shape.dtype);
  result.run = [operands, tokens, n = shape.n, k = shape.k] {
    MatmulOperands& mine = *operands;
    ops::Matmul(mine.stream, *mine.workspace,
                {.out = {reinterpret_cast<std::byte*>(mine.out.data()), DType::kF32, {tokens, n}},
                 .x = {reinterpret_cast<const std::byte*>(mine.x.data()), DType::kF32, {tokens, k}},
                 .w = &mine.copies[mine.next]});
    mine.next = (mine.next + 1) % mine.copies.size();
  };
  return result;
}

}  // namespace

void AddMatmulSpecs(std::vector<OpSpec>& specs) {
  for (const Shape& shape : Shapes()) {
    for (const int64_t tokens : shape.tokens) {
      specs.push_back({fmt::format("matmul/{}/{}[{},{}]/T{}", Info(shape.dtype).name, shape.name,
                                   shape.n, shape.k, tokens),
                       [shape, tokens] { return MakeMatmul(shape, tokens); }});
    }
  }
}

}  // namespace hayate::bench
