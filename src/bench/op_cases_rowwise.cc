#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "base/rng.h"
#include "bench/op_cases.h"
#include "ops/activation/swiglu.h"
#include "ops/norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/sampling/sampling.h"

namespace hayate::bench {
namespace {

// SmolLM2-135M.
constexpr int64_t kHidden = 576;
constexpr int64_t kFfn = 1536;
constexpr int32_t kVocab = 49152;
constexpr int64_t kHeads = 9;
constexpr int64_t kKvHeads = 3;
constexpr int64_t kHeadDim = 64;

std::vector<float> RandomFloats(int64_t count) {
  Rng rng(5);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rng.NextNormal();
  return values;
}

TensorView ViewOf(std::vector<float>& values, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape};
}

OpCase MakeRmsNorm(int64_t tokens) {
  struct Operands {
    std::unique_ptr<Device> device = MakeCpuDevice(0);
    std::vector<float> x, residual, out, weight;
  };
  auto o = std::make_shared<Operands>();
  o->x = RandomFloats(tokens * kHidden);
  // Adding x over and over would overflow in the end; zeros keep the residual as it is.
  std::fill(o->x.begin(), o->x.end(), 0.0f);
  o->residual = RandomFloats(tokens * kHidden);
  o->out.resize(o->x.size());
  o->weight.assign(kHidden, 1.0f);
  OpCase result;
  result.flop = 5.0 * static_cast<double>(tokens * kHidden);
  result.run = [o, tokens] {
    const Shape shape{tokens, kHidden};
    ops::AddRmsNorm({o->device.get()}, {.residual = ViewOf(o->residual, shape),
                                        .x = ViewOf(o->x, shape),
                                        .out = ViewOf(o->out, shape),
                                        .weight = o->weight.data()});
  };
  return result;
}

OpCase MakeRope(int64_t tokens) {
  struct Operands {
    std::unique_ptr<Device> device = MakeCpuDevice(0);
    std::vector<float> qkv, cos_sin;
    std::vector<int32_t> positions;
  };
  auto o = std::make_shared<Operands>();
  constexpr int64_t kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
  o->qkv = RandomFloats(tokens * kWidth);
  o->positions.resize(static_cast<size_t>(tokens));
  std::iota(o->positions.begin(), o->positions.end(), 0);
  const auto frequencies = ops::ComputeRopeFrequencies(
      {.head_dim = kHeadDim, .rotary_dim = kHeadDim}, static_cast<int32_t>(tokens));
  o->cos_sin.resize(static_cast<size_t>(tokens * kHeadDim));
  ops::RopeRows({}, {.out = ViewOf(o->cos_sin, {tokens, kHeadDim}),
                     .positions = o->positions.data(),
                     .inv_freq = frequencies->inv_freq.data()});
  OpCase result;
  result.flop = 3.0 * static_cast<double>(tokens * (kHeads + kKvHeads) * kHeadDim);
  result.run = [o, tokens] {
    const TensorView all = ViewOf(o->qkv, {tokens, kWidth});
    const TensorView q{all.data, DType::kF32, {tokens, kHeads, kHeadDim}};
    const TensorView k{all.data + kHeads * kHeadDim * int64_t{sizeof(float)},
                       DType::kF32,
                       {tokens, kKvHeads, kHeadDim}};
    ops::Rope({o->device.get()}, {.q = q,
                                  .k = k,
                                  .q_row_stride = kWidth,
                                  .k_row_stride = kWidth,
                                  .positions = o->positions.data(),
                                  .cos_sin = o->cos_sin.data(),
                                  .rotary_dim = kHeadDim});
  };
  return result;
}

OpCase MakeSwiGlu(int64_t tokens) {
  struct Operands {
    std::unique_ptr<Device> device = MakeCpuDevice(0);
    std::vector<float> gate_up, out;
  };
  auto o = std::make_shared<Operands>();
  o->gate_up = RandomFloats(tokens * 2 * kFfn);
  o->out.resize(static_cast<size_t>(tokens * kFfn));
  OpCase result;
  result.flop = 4.0 * static_cast<double>(tokens * kFfn);  // an exponential counted as one
  result.run = [o, tokens] {
    ops::SwiGlu({o->device.get()}, {.out = ViewOf(o->out, {tokens, kFfn}),
                                    .gate_up = ViewOf(o->gate_up, {tokens, 2 * kFfn})});
  };
  return result;
}

// Without penalties the logits are left as they are, so calls can share them.
OpCase MakeSample(const ops::SamplingRow& row) {
  struct Operands {
    std::unique_ptr<Device> device = MakeCpuDevice(0);
    Workspace workspace{
        Buffer::Allocate(*device, static_cast<size_t>(ops::SampleWorkspaceBytes(kVocab))).value()};
    std::vector<float> logits = RandomFloats(kVocab);
    ops::SamplingRow row;
    ops::SamplingResult result;
  };
  auto o = std::make_shared<Operands>();
  o->row = row;
  o->row.logits = o->logits.data();
  OpCase result;
  result.flop = kVocab;
  result.run = [o] {
    ++o->row.position;
    ops::Sample({o->device.get()}, o->workspace, kVocab, {&o->row, 1}, {&o->result, 1});
  };
  return result;
}

}  // namespace

void AddRowwiseSpecs(std::vector<OpSpec>& specs) {
  for (const int64_t tokens : {1, 8, 512}) {
    specs.push_back({fmt::format("add_rms_norm[{}]/T{}", kHidden, tokens),
                     [tokens] { return MakeRmsNorm(tokens); }});
    specs.push_back({fmt::format("rope[{}+{},{}]/T{}", kHeads, kKvHeads, kHeadDim, tokens),
                     [tokens] { return MakeRope(tokens); }});
    specs.push_back(
        {fmt::format("swiglu[{}]/T{}", kFfn, tokens), [tokens] { return MakeSwiGlu(tokens); }});
  }
  const std::pair<const char*, ops::SamplingRow> rows[] = {
      {"greedy", {.temperature = 0.0f}},
      {"temperature", {.temperature = 1.0f}},
      {"top_p", {.temperature = 1.0f, .top_p = 0.9f}},
      {"top_k-top_p", {.temperature = 1.0f, .top_k = 50, .top_p = 0.9f}}};
  for (const auto& [name, row] : rows) {
    specs.push_back(
        {fmt::format("sample[{}]/{}", kVocab, name), [row = row] { return MakeSample(row); }});
  }
}

}  // namespace hayate::bench
