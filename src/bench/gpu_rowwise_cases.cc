#include <fmt/format.h>

#include "bench/gpu_cases.h"
#include "bench/gpu_operands.h"
#include "ops/activation/swiglu.h"
#include "ops/norm/rms_norm.h"
#include "ops/sampling/device_sampler.h"

namespace hayate::bench {
namespace {

// Qwen3-8B.
constexpr int64_t kHidden = 4096;
constexpr int64_t kFfn = 12288;
constexpr int32_t kVocab = 151936;

TensorView Rows(std::byte* data, DType dtype, int64_t rows, int64_t columns) {
  return {data, dtype, {rows, columns}};
}

OpCase MakeAddRmsNorm(int64_t tokens) {
  auto operands = std::make_shared<GpuOperands>();
  const int64_t count = tokens * kHidden;
  // Adding x over and over would overflow in the end; zeros keep the residual as it is.
  const ops::AddRmsNormArgs args{
      .residual = Rows(operands->Random(count * 4, DType::kF32), DType::kF32, tokens, kHidden),
      .x = Rows(operands->Zeros(count * 2), DType::kBF16, tokens, kHidden),
      .out = Rows(operands->Take(count * 2), DType::kBF16, tokens, kHidden),
      .weight = operands->Place(std::vector<float>(size_t{kHidden}, 1.0f))};
  operands->FinishLoading();
  OpCase result;
  result.flop = 5.0 * static_cast<double>(count);
  result.stream = operands->stream();
  result.run = [operands, args] { ops::AddRmsNorm(operands->stream(), args); };
  return result;
}

OpCase MakeSwiGlu(int64_t tokens) {
  auto operands = std::make_shared<GpuOperands>();
  const int64_t count = tokens * kFfn;
  const ops::SwiGluArgs args{
      .out = Rows(operands->Take(count * 2), DType::kBF16, tokens, kFfn),
      .gate_up = Rows(operands->Random(count * 4, DType::kBF16), DType::kBF16, tokens, 2 * kFfn)};
  operands->FinishLoading();
  OpCase result;
  result.flop = 4.0 * static_cast<double>(count);  // an exponential counted as one
  result.stream = operands->stream();
  result.run = [operands, args] { ops::SwiGlu(operands->stream(), args); };
  return result;
}

OpCase MakeSample(int32_t batch, const ops::SamplerRow& like) {
  auto operands = std::make_shared<GpuOperands>();
  std::vector<ops::SamplerRow> rows(static_cast<size_t>(batch), like);
  for (int32_t r = 0; r < batch; ++r) rows[static_cast<size_t>(r)].logits_row = r;
  const int64_t logits = int64_t{batch} * kVocab * 4;
  ops::SampleRowsArgs args{.kernel = ops::SamplerKernelFor(rows),
                           .num_rows = batch,
                           .vocab_size = kVocab,
                           .rows = operands->Place(rows)};
  args.results = reinterpret_cast<ops::SampledToken*>(operands->Take(batch * int64_t{16}));
  args.top_ids = reinterpret_cast<int32_t*>(operands->Take(batch * int64_t{80}));
  args.top_logprobs = reinterpret_cast<float*>(operands->Take(batch * int64_t{80}));
  std::vector<const float*> copies;
  for (int32_t i = 0; i < GpuCopies(logits); ++i) {
    copies.push_back(reinterpret_cast<float*>(operands->Random(logits, DType::kF32)));
  }
  operands->FinishLoading();
  OpCase result;
  result.cold_bytes = static_cast<double>(logits);
  result.stream = operands->stream();
  result.run = [operands, copies, args, next = size_t{0}]() mutable {
    args.logits = copies[next];
    next = (next + 1) % copies.size();
    ops::SampleRows(operands->stream(), args);
  };
  return result;
}

}  // namespace

void AddGpuRowwiseSpecs(std::vector<OpSpec>& specs) {
  for (const int64_t tokens : {1, 64, 256, 8192}) {
    specs.push_back({fmt::format("add_rms_norm[{}]/T{}", kHidden, tokens),
                     [=] { return MakeAddRmsNorm(tokens); }});
    specs.push_back(
        {fmt::format("swiglu[{}]/T{}", kFfn, tokens), [=] { return MakeSwiGlu(tokens); }});
  }
  const std::pair<const char*, ops::SamplerRow> rows[] = {
      {"greedy", {.temperature = 0.0f}},
      {"temperature", {.temperature = 1.0f}},
      {"top_k-top_p", {.temperature = 1.0f, .top_k = 50, .top_p = 0.9f}}};
  for (const auto& [name, row] : rows) {
    for (const int32_t batch : {1, 256}) {
      specs.push_back({fmt::format("sample[{}]/{}/B{}", kVocab, name, batch),
                       [=, row = row] { return MakeSample(batch, row); }});
    }
  }
}

}  // namespace hayate::bench
