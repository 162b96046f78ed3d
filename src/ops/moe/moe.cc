#include "ops/moe/moe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "base/align.h"
#include "ops/activation/swiglu.h"
#include "ops/moe/sm90/experts.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

// Tokens that go through an expert together: enough to read its weights once for many, few enough
// that their activations stay in the second-level cache.
constexpr int64_t kTokensPerPass = 64;

int64_t BytesOf(const std::vector<PackedMatrix>& matrices) {
  int64_t sum = 0;
  for (const PackedMatrix& matrix : matrices) sum += static_cast<int64_t>(matrix.storage.size());
  return sum;
}
int64_t BytesOf(const std::optional<PackedMatrix>& matrix) {
  return matrix ? static_cast<int64_t>(matrix->storage.size()) : 0;
}

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }
// A row of a [rows, width] buffer, or null of an empty one.
const float* RowOf(const Buffer& buffer, int64_t row, int64_t width) {
  return buffer.size() == 0 ? nullptr : Floats(buffer) + row * width;
}

void Glu(Stream stream, TensorView out, ConstTensorView gate_up, const SwiGluForm& form) {
  if (form.plain()) return SwiGlu(stream, {.out = out, .gate_up = gate_up});
  ClampedSwiGlu(stream, {.out = out, .gate_up = gate_up, .form = form});
}

void Axpy(float a, const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += a * x[i];
}

// The (token, choice) pairs of each expert of the rank, tokens ascending: pairs of expert e are
// order[begin[e], begin[e + 1]), each token · K + choice.
struct Groups {
  int64_t* begin = nullptr;  // [experts + 1]
  int64_t* order = nullptr;
};
Groups GroupByExpert(Workspace& workspace, const ExpertsArgs& args) {
  const int64_t experts = std::ssize(args.experts->gate_up);
  const int64_t pairs = args.x.rows() * args.config->router.top_k;
  Groups groups{workspace.TakeArray<int64_t>(experts + 2), workspace.TakeArray<int64_t>(pairs)};
  std::fill_n(groups.begin, experts + 2, int64_t{0});
  const auto local = [&](int64_t pair) { return int64_t{args.chosen[pair]} - args.experts->first; };
  const auto mine = [&](int64_t expert) { return expert >= 0 && expert < experts; };
  // begin[e + 2] counts, then begin[e + 1] walks from the start of e to that of e + 1.
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (mine(local(pair))) ++groups.begin[local(pair) + 2];
  }
  for (int64_t e = 0; e < experts; ++e) groups.begin[e + 2] += groups.begin[e + 1];
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (mine(local(pair))) groups.order[groups.begin[local(pair) + 1]++] = pair;
  }
  return groups;
}

// `count` pairs of one expert, added to their tokens' rows of out.
void RunGroup(Stream stream, Workspace& workspace, const ExpertsArgs& args, int64_t expert,
              const int64_t* pairs, int64_t count) {
  const size_t mark = workspace.mark();
  const MoeConfig& config = *args.config;
  const int64_t h = config.hidden_size, f = config.expert_size, k = config.router.top_k;
  const bool weigh_before = config.place == RoutingWeightPlace::kBeforeDown;
  const TensorView x = workspace.Take(DType::kF32, {count, h});
  const TensorView gate_up = workspace.Take(DType::kF32, {count, 2 * f});
  const TensorView hidden = workspace.Take(DType::kF32, {count, f});
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(x.as<float>() + i * h, args.x.as<float>() + pairs[i] / k * h,
                static_cast<size_t>(h) * sizeof(float));
  }
  const size_t index = static_cast<size_t>(expert);
  Matmul(stream, workspace,
         {.out = gate_up,
          .x = x,
          .w = &args.experts->gate_up[index],
          .bias = RowOf(args.experts->gate_up_bias, expert, 2 * f)});
  Glu(stream, hidden, gate_up, config.form);
  for (int64_t i = 0; i < count && weigh_before; ++i) {
    float* row = hidden.as<float>() + i * f;
    for (int64_t j = 0; j < f; ++j) row[j] *= args.weights[pairs[i]];
  }
  // x was read: its memory takes the result.
  Matmul(stream, workspace,
         {.out = x,
          .x = hidden,
          .w = &args.experts->down[index],
          .bias = RowOf(args.experts->down_bias, expert, h)});
  for (int64_t i = 0; i < count; ++i) {
    const float weight = weigh_before ? 1.0f : args.weights[pairs[i]];
    Axpy(weight, x.as<float>() + i * h, args.out.as<float>() + pairs[i] / k * h, h);
  }
  workspace.ResetTo(mark);
}

}  // namespace

int64_t ExpertWeights::bytes() const {
  return BytesOf(gate_up) + BytesOf(down) +
         static_cast<int64_t>(gate_up_bias.size() + down_bias.size());
}

int64_t MoeWeights::bytes() const {
  return static_cast<int64_t>(gate.storage.size() + gate_bias.size() + choice_bias.size() +
                              listed.size()) +
         experts.bytes() + BytesOf(shared_gate_up) + BytesOf(shared_down) + BytesOf(shared_gate);
}

std::vector<std::span<std::byte>> ExpertMemory(const ExpertWeights& experts, size_t place) {
  std::vector<std::span<std::byte>> memory;
  for (const auto* matrices : {&experts.gate_up, &experts.down}) {
    const Buffer& storage = (*matrices)[place].storage;
    memory.emplace_back(storage.data(), storage.size());
  }
  for (const Buffer* bias : {&experts.gate_up_bias, &experts.down_bias}) {
    const size_t bytes = bias->size() / experts.gate_up.size();
    if (bytes > 0) memory.emplace_back(bias->data() + place * bytes, bytes);
  }
  return memory;
}

bool SameLayout(const ExpertWeights& a, size_t place_a, const ExpertWeights& b, size_t place_b) {
  const auto same_part = [](const PackedPart& x, const PackedPart& y) {
    return x.n == y.n && x.offset == y.offset && x.layout == y.layout;
  };
  const auto same = [&](const PackedMatrix& x, const PackedMatrix& y) {
    return x.n == y.n && x.k == y.k && x.source_dtype == y.source_dtype &&
           x.storage.size() == y.storage.size() && std::ranges::equal(x.parts, y.parts, same_part);
  };
  return same(a.gate_up[place_a], b.gate_up[place_b]) && same(a.down[place_a], b.down[place_b]) &&
         (a.gate_up_bias.size() > 0) == (b.gate_up_bias.size() > 0) &&
         (a.down_bias.size() > 0) == (b.down_bias.size() > 0);
}

Status PlaceExperts(Device& device, ExpertWeights& experts) {
  if constexpr (kCudaBuild) {
    if (device.kind() == DeviceKind::kCuda) return sm90::PlaceExperts(device, experts);
  }
  return OkStatus();
}

void RunExperts(Stream stream, Workspace& workspace, const ExpertsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::RunExperts(stream, workspace, args);
  }
  DCHECK(args.config->place == RoutingWeightPlace::kAfterDown ||
         args.experts->down_bias.size() == 0);
  if (args.out.num_bytes() == 0) return;
  const size_t mark = workspace.mark();
  std::memset(args.out.data, 0, static_cast<size_t>(args.out.num_bytes()));
  const Groups groups = GroupByExpert(workspace, args);
  for (int64_t e = 0; e < std::ssize(args.experts->gate_up); ++e) {
    for (int64_t at = groups.begin[e]; at < groups.begin[e + 1]; at += kTokensPerPass) {
      RunGroup(stream, workspace, args, e, groups.order + at,
               std::min(kTokensPerPass, groups.begin[e + 1] - at));
    }
  }
  workspace.ResetTo(mark);
}

void AddSharedExpert(Stream stream, Workspace& workspace, const MoeArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::AddSharedExpert(stream, workspace, args);
  }
  const MoeWeights& weights = *args.weights;
  if (!weights.shared_gate_up) return;
  const int64_t h = args.config->hidden_size, f = args.config->shared_size;
  for (int64_t begin = 0; begin < args.x.rows(); begin += kTokensPerPass) {
    const size_t mark = workspace.mark();
    const int64_t count = std::min(kTokensPerPass, args.x.rows() - begin);
    const ConstTensorView x{args.x.data + begin * h * 4, DType::kF32, {count, h}};
    const TensorView gate_up = workspace.Take(DType::kF32, {count, 2 * f});
    const TensorView hidden = workspace.Take(DType::kF32, {count, f});
    const TensorView result = workspace.Take(DType::kF32, {count, h});
    const TensorView gate = workspace.Take(DType::kF32, {count, 1});
    Matmul(stream, workspace, {.out = gate_up, .x = x, .w = &*weights.shared_gate_up});
    Glu(stream, hidden, gate_up, args.config->form);
    Matmul(stream, workspace, {.out = result, .x = hidden, .w = &*weights.shared_down});
    if (weights.shared_gate) {
      Matmul(stream, workspace, {.out = gate, .x = x, .w = &*weights.shared_gate});
    }
    for (int64_t i = 0; i < count; ++i) {
      const float weight =
          weights.shared_gate ? 1.0f / (1.0f + std::exp(-gate.as<float>()[i])) : 1.0f;
      Axpy(weight, result.as<float>() + i * h, args.out.as<float>() + (begin + i) * h, h);
    }
    workspace.ResetTo(mark);
  }
}

void ChooseExperts(Stream stream, Workspace& workspace, const ChooseExpertsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ChooseExperts(stream, workspace, args);
  }
  const size_t mark = workspace.mark();
  const MoeWeights& weights = *args.weights;
  const RouterConfig& router = args.config->router;
  const TensorView logits = workspace.Take(DType::kF32, {args.x.rows(), router.num_experts});
  Matmul(stream, workspace,
         {.out = logits, .x = args.x, .w = &weights.gate, .bias = RowOf(weights.gate_bias, 0, 0)});
  Route(stream, router,
        {.logits = logits,
         .choice_bias = RowOf(weights.choice_bias, 0, 0),
         .listed = weights.listed.size() == 0
                       ? nullptr
                       : reinterpret_cast<const int32_t*>(weights.listed.data()),
         .token_ids = args.token_ids,
         .experts = args.chosen,
         .weights = args.routing});
  workspace.ResetTo(mark);
}

void CombineExperts(Stream stream, Workspace& workspace, const CombineExpertsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::CombineExperts(stream, workspace, args);
  }
  const TensorView& out = args.moe.out;
  const int64_t k = args.moe.config->router.top_k, h = out.shape[1];
  std::memset(out.data, 0, static_cast<size_t>(out.num_bytes()));
  std::array<int64_t, kMaxExpertsPerToken> order;
  const auto choices = std::span(order).first(static_cast<size_t>(k));
  for (int64_t t = 0; t < out.rows(); ++t) {
    std::iota(choices.begin(), choices.end(), t * k);
    std::ranges::sort(choices, {}, [&](int64_t pair) { return args.chosen[pair]; });
    for (const int64_t pair : choices) {
      Axpy(1.0f, args.rows.as<float>() + pair * h, out.as<float>() + t * h, h);
    }
  }
  AddSharedExpert(stream, workspace, args.moe);
}

void RunExpertPairs(Stream stream, Workspace& workspace, const ExpertsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::RunExpertPairs(stream, workspace, args);
  }
  DCHECK_EQ(args.config->router.top_k, 1);
  RunExperts(stream, workspace, args);
}

void Moe(Stream stream, Workspace& workspace, const MoeArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::Moe(stream, workspace, args);
  }
  const size_t mark = workspace.mark();
  const int64_t pairs = args.x.rows() * args.config->router.top_k;
  int32_t* chosen = workspace.TakeArray<int32_t>(pairs);
  float* routing = workspace.TakeArray<float>(pairs);
  ChooseExperts(stream, workspace,
                {.x = args.x,
                 .token_ids = args.token_ids,
                 .config = args.config,
                 .weights = args.weights,
                 .chosen = chosen,
                 .routing = routing});
  RunExperts(stream, workspace,
             {.out = args.out,
              .x = args.x,
              .chosen = chosen,
              .weights = routing,
              .config = args.config,
              .experts = &args.weights->experts});
  AddSharedExpert(stream, workspace, args);
  workspace.ResetTo(mark);
}

int64_t MoeWorkspaceBytes(const MoeConfig& config, int64_t num_experts, int64_t max_tokens) {
  const int64_t h = config.hidden_size, k = config.router.top_k;
  const int64_t f = std::max(config.expert_size, config.shared_size);
  const int64_t pass = std::min(max_tokens, kTokensPerPass);
  const int64_t routing = max_tokens * (config.router.num_experts * 4 + k * 16);
  const int64_t passes = pass * (h + 3 * f + 1) * 4;
  const int64_t products = std::max({MatmulWorkspaceBytes(max_tokens, h),
                                     MatmulWorkspaceBytes(pass, h), MatmulWorkspaceBytes(pass, f)});
  const int64_t bytes = routing + (num_experts + 2) * 8 + passes + products +
                        9 * static_cast<int64_t>(Workspace::kAlignment);
  if constexpr (kCudaBuild) {
    return std::max(bytes, sm90::MoeWorkspaceBytes(config, num_experts, max_tokens));
  }
  return bytes;
}

}  // namespace hayate::ops
