#include <fmt/format.h>

#include "bench/gpu_cases.h"
#include "bench/gpu_operands.h"

namespace hayate::bench {
namespace {

struct Shape {
  const char* name;
  int64_t n, k;
};

constexpr Shape kShapes[] = {
    {"qwen3-8b-qkv", 6144, 4096},       {"qwen3-8b-o", 4096, 4096},
    {"qwen3-8b-gate_up", 24576, 4096},  {"qwen3-8b-down", 4096, 12288},
    {"llama-70b-qkv", 10240, 8192},     {"llama-70b-o", 8192, 8192},
    {"llama-70b-gate_up", 57344, 8192}, {"llama-70b-down", 8192, 28672},
    {"v4-flash-wq_a+wkv", 1536, 4096},  {"v4-flash-wq_b", 32768, 1024},
    {"v4-flash-wo_b", 4096, 8192},      {"v4-flash-shared_w13", 4096, 4096},
    {"v4-flash-shared_w2", 4096, 2048},
};
constexpr int64_t kTokens[] = {1, 8, 64, 128, 1024, 4096, 8192};

struct Kind {
  const char* name;
  DType stored;
  ops::MatmulPrecision precision;
  OpArithmetic arithmetic;
};
constexpr Kind kKinds[] = {
    {"BF16", DType::kBF16, ops::MatmulPrecision::kFast, OpArithmetic::kBf16},
    {"F8_E4M3-block", DType::kF8E4M3, ops::MatmulPrecision::kFast, OpArithmetic::kFp8},
    {"F8_E4M3-row", DType::kBF16, ops::MatmulPrecision::kFp8, OpArithmetic::kFp8},
};

// Fp8 products read activations that the operator before them has quantised.
OpCase MakeMatmul(const Kind& kind, const Shape& shape, int64_t tokens) {
  auto operands = std::make_shared<GpuOperands>();
  const int64_t element = kind.arithmetic == OpArithmetic::kBf16 ? 2 : 1;
  std::vector<const ops::PackedMatrix*> copies;
  for (int32_t i = 0; i < GpuCopies(shape.n * shape.k * element); ++i) {
    copies.push_back(operands->Weights(kind.stored, shape.n, shape.k, kind.precision));
  }
  ops::MatmulArgs args{
      .out = {operands->Take(tokens * shape.n * 2), DType::kBF16, {tokens, shape.n}},
      .x = TensorView{
          operands->Random(tokens * shape.k * 2, DType::kBF16), DType::kBF16, {tokens, shape.k}}};
  const auto wanted = ops::WantedFp8(*copies[0]);
  operands->ReserveWorkspace(ops::MatmulWorkspaceBytes(tokens, shape.k) +
                             (wanted ? ops::Fp8RowsBytes(*wanted, tokens, shape.k) : 0));
  operands->FinishLoading();
  if (wanted) {
    args.x_fp8 = ops::TakeFp8Rows(operands->workspace(), *wanted, tokens, shape.k);
    ops::QuantizeRows(operands->stream(), {.out = args.x_fp8, .x = args.x});
    args.x.data = nullptr;
  }
  OpCase result;
  result.cold_bytes = static_cast<double>(shape.n * shape.k * element);
  result.flop = 2.0 * static_cast<double>(tokens * shape.n) * static_cast<double>(shape.k);
  result.arithmetic = kind.arithmetic;
  result.stream = operands->stream();
  result.run = [operands, copies, args, next = size_t{0}]() mutable {
    args.w = copies[next];
    next = (next + 1) % copies.size();
    ops::Matmul(operands->stream(), operands->workspace(), args);
  };
  return result;
}

}  // namespace

void AddGpuMatmulSpecs(std::vector<OpSpec>& specs) {
  for (const Kind& kind : kKinds) {
    for (const Shape& shape : kShapes) {
      for (const int64_t tokens : kTokens) {
        specs.push_back({fmt::format("matmul/{}/{}[{},{}]/T{}", kind.name, shape.name, shape.n,
                                     shape.k, tokens),
                         [=] { return MakeMatmul(kind, shape, tokens); }});
      }
    }
  }
}

}  // namespace hayate::bench
