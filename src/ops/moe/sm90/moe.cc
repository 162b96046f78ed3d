#include "ops/moe/moe.h"

#include <algorithm>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/activation/swiglu.h"
#include "ops/matmul/sm90/matrix.h"
#include "ops/moe/sm90/experts.h"
#include "ops/moe/sm90/router.h"
#include "ops/zero/zero.h"

namespace hayate::ops::sm90 {
namespace {

// Of a pass's intermediate rows. Tokens beyond go in further passes.
constexpr int64_t kPassBytes = int64_t{256} << 20;
constexpr int64_t kLeastPass = 64;

int64_t TokensPerPass(const MoeConfig& config, int64_t tokens) {
  const int64_t token_bytes =
      config.router.top_k * int64_t{config.hidden_size + config.expert_size} * 4;
  const int64_t most = AlignDown<int64_t>(kPassBytes / token_bytes, kLeastPass);
  return std::min(tokens, std::max(most, kLeastPass));
}

const float* Floats(const Buffer& buffer) {
  return buffer.size() == 0 ? nullptr : reinterpret_cast<const float*>(buffer.data());
}

ConstTensorView RowsOf(const ConstTensorView& x, int64_t begin, int64_t count) {
  return {x.data + begin * RowBytes(x.dtype, x.cols()), x.dtype, {count, x.cols()}};
}
TensorView RowsOf(const TensorView& x, int64_t begin, int64_t count) {
  return {x.data + begin * RowBytes(x.dtype, x.cols()), x.dtype, {count, x.cols()}};
}

// g(x) · S(x) of a pass, before it is added.
struct SharedResult {
  ConstTensorView rows;  // [T, H] or no data
  const float* gate = nullptr;
};
SharedResult RunShared(Stream stream, Workspace& workspace, const MoeConfig& config,
                       const MoeWeights& weights, const ConstTensorView& x) {
  if (!weights.shared_gate_up) return {};
  const int64_t tokens = x.rows(), f = config.shared_size;
  SharedResult shared;
  const TensorView rows = workspace.Take(x.dtype, {tokens, config.hidden_size});
  if (weights.shared_gate) {
    float* gate = workspace.TakeArray<float>(tokens);
    GateLogits(
        stream,
        {.logits = gate, .x = x, .gate = Floats(weights.shared_gate->storage), .num_experts = 1});
    shared.gate = gate;
  }
  const size_t mark = workspace.mark();
  const TensorView gate_up = workspace.Take(x.dtype, {tokens, 2 * f});
  const TensorView hidden = workspace.Take(x.dtype, {tokens, f});
  Matmul(stream, workspace, {.out = gate_up, .x = x, .w = &*weights.shared_gate_up});
  if (config.form.plain()) {
    SwiGlu(stream, {.out = hidden, .gate_up = gate_up});
  } else {
    ClampedSwiGlu(stream, {.out = hidden, .gate_up = gate_up, .form = config.form});
  }
  Matmul(stream, workspace, {.out = rows, .x = hidden, .w = &*weights.shared_down});
  workspace.ResetTo(mark);
  shared.rows = rows;
  return shared;
}

// The weighted results of all pairs of args.x whose expert is on this rank; the others' stay.
void RunPairs(Stream stream, Workspace& workspace, const ExpertsArgs& args, TensorView results) {
  const MoeConfig& config = *args.config;
  const ExpertWeights& experts = *args.experts;
  const DType dtype = args.x.dtype;
  const auto count = static_cast<int32_t>(std::ssize(experts.gate_up));
  if (count == 0) return;
  const size_t mark = workspace.mark();
  const auto pairs = static_cast<int32_t>(args.x.rows() * config.router.top_k);
  const auto* storage = reinterpret_cast<const std::byte* const*>(experts.addresses.data());
  const ExpertMatrix up = MatrixOf(experts.gate_up[0], storage, config.expert_size);
  const ExpertMatrix down = MatrixOf(experts.down[0], storage + count, config.hidden_size);
  GroupedPairs groups = {.tile_tokens = std::min(TileTokens(up, dtype, up.k, pairs, count),
                                                 TileTokens(down, dtype, down.k, pairs, count))};
  groups.max_tiles = MaxTiles(pairs, count, groups.tile_tokens);
  groups.order = workspace.TakeArray<int32_t>(pairs);
  groups.tiles = workspace.TakeArray<ExpertTile>(groups.max_tiles);
  groups.num_tiles = workspace.TakeArray<int32_t>(1);
  const TensorView hidden = workspace.Take(dtype, {pairs, config.expert_size});
  const bool before = config.place == RoutingWeightPlace::kBeforeDown;
  GroupPairs(stream, {.out = groups,
                      .chosen = args.chosen,
                      .num_pairs = pairs,
                      .first = experts.first,
                      .num_experts = count});
  GroupedProduct(stream, {.out = hidden,
                          .x = args.x,
                          .out_stride = config.expert_size,
                          .x_stride = config.hidden_size,
                          .pairs_per_row = config.router.top_k,
                          .w = up,
                          .bias = Floats(experts.gate_up_bias),
                          .weights = before ? args.weights : nullptr,
                          .pairs = groups,
                          .gated = true,
                          .form = config.form});
  GroupedProduct(stream, {.out = results,
                          .x = hidden,
                          .out_stride = config.hidden_size,
                          .x_stride = config.expert_size,
                          .w = down,
                          .bias = Floats(experts.down_bias),
                          .weights = before ? nullptr : args.weights,
                          .pairs = groups});
  workspace.ResetTo(mark);
}

// One pass: all pairs of args.x, and the shared expert's result.
void RunPass(Stream stream, Workspace& workspace, const ExpertsArgs& args,
             const SharedResult& shared) {
  const size_t mark = workspace.mark();
  const MoeConfig& config = *args.config;
  const int64_t pairs = args.x.rows() * config.router.top_k;
  const TensorView results = workspace.Take(args.x.dtype, {pairs, config.hidden_size});
  RunPairs(stream, workspace, args, results);
  AddUpExperts(stream, {.out = args.out,
                        .results = results,
                        .chosen = args.chosen,
                        .top_k = config.router.top_k,
                        .first = args.experts->first,
                        .num_experts = static_cast<int32_t>(std::ssize(args.experts->gate_up)),
                        .shared = shared.rows,
                        .shared_gate = shared.gate});
  workspace.ResetTo(mark);
}

// Tokens [begin, begin + count) alone.
ExpertsArgs PassOf(const ExpertsArgs& args, int64_t begin, int64_t count, int64_t out_rows) {
  const int64_t k = args.config->router.top_k;
  ExpertsArgs pass = args;
  pass.out = RowsOf(args.out, begin * out_rows, count * out_rows);
  pass.x = RowsOf(args.x, begin, count);
  pass.chosen += begin * k;
  pass.weights += begin * k;
  return pass;
}

}  // namespace

Status PlaceExperts(Device& device, ExpertWeights& experts) {
  if (experts.gate_up.empty()) return OkStatus();
  RETURN_IF_ERROR(CheckAlike(experts.gate_up, 2));
  RETURN_IF_ERROR(CheckAlike(experts.down, 1));
  std::vector<const std::byte*> addresses;
  for (const PackedMatrix& matrix : experts.gate_up) addresses.push_back(matrix.storage.data());
  for (const PackedMatrix& matrix : experts.down) addresses.push_back(matrix.storage.data());
  const size_t bytes = addresses.size() * sizeof(addresses[0]);
  ASSIGN_OR_RETURN(experts.addresses, Buffer::Allocate(device, bytes));
  device.Upload(experts.addresses.data(), addresses.data(), bytes);
  return OkStatus();
}

void RunExperts(Stream stream, Workspace& workspace, const ExpertsArgs& args) {
  const int64_t step = TokensPerPass(*args.config, args.x.rows());
  for (int64_t begin = 0; begin < args.x.rows(); begin += step) {
    const int64_t count = std::min(step, args.x.rows() - begin);
    RunPass(stream, workspace, PassOf(args, begin, count, 1), {});
  }
}

void RunExpertPairs(Stream stream, Workspace& workspace, const ExpertsArgs& args) {
  const int64_t k = args.config->router.top_k, step = TokensPerPass(*args.config, args.x.rows());
  for (int64_t begin = 0; begin < args.x.rows(); begin += step) {
    const int64_t count = std::min(step, args.x.rows() - begin);
    const ExpertsArgs pass = PassOf(args, begin, count, k);
    RunPairs(stream, workspace, pass, pass.out);
  }
}

void ChooseExperts(Stream stream, Workspace& workspace, const ChooseExpertsArgs& args) {
  const size_t mark = workspace.mark();
  const MoeWeights& weights = *args.weights;
  const RouterConfig& router = args.config->router;
  const TensorView logits = workspace.Take(DType::kF32, {args.x.rows(), router.num_experts});
  GateLogits(stream, {.logits = logits.as<float>(),
                      .x = args.x,
                      .gate = Floats(weights.gate.storage),
                      .bias = Floats(weights.gate_bias),
                      .num_experts = router.num_experts});
  sm90::Route(stream, router,
              {.logits = logits,
               .choice_bias = Floats(weights.choice_bias),
               .listed = weights.listed.size() == 0
                             ? nullptr
                             : reinterpret_cast<const int32_t*>(weights.listed.data()),
               .token_ids = args.token_ids,
               .experts = args.chosen,
               .weights = args.routing});
  workspace.ResetTo(mark);
}

void CombineExperts(Stream stream, Workspace& workspace, const CombineExpertsArgs& args) {
  const MoeArgs& moe = args.moe;
  const int64_t k = moe.config->router.top_k, step = TokensPerPass(*moe.config, moe.x.rows());
  for (int64_t begin = 0; begin < moe.x.rows(); begin += step) {
    const size_t mark = workspace.mark();
    const int64_t count = std::min(step, moe.x.rows() - begin);
    const SharedResult shared =
        RunShared(stream, workspace, *moe.config, *moe.weights, RowsOf(moe.x, begin, count));
    AddUpExperts(stream, {.out = RowsOf(moe.out, begin, count),
                          .results = RowsOf(args.rows, begin * k, count * k),
                          .top_k = moe.config->router.top_k,
                          .shared = shared.rows,
                          .shared_gate = shared.gate});
    workspace.ResetTo(mark);
  }
}

void AddSharedExpert(Stream stream, Workspace& workspace, const MoeArgs& args) {
  if (!args.weights->shared_gate_up) return;
  const int64_t tokens = args.x.rows(), step = TokensPerPass(*args.config, tokens);
  for (int64_t begin = 0; begin < tokens; begin += step) {
    const size_t mark = workspace.mark();
    const int64_t count = std::min(step, tokens - begin);
    const SharedResult shared =
        RunShared(stream, workspace, *args.config, *args.weights, RowsOf(args.x, begin, count));
    const TensorView out = RowsOf(args.out, begin, count);
    AddUpExperts(stream, {.out = out,
                          .results = out,
                          .top_k = 1,
                          .shared = shared.rows,
                          .shared_gate = shared.gate});
    workspace.ResetTo(mark);
  }
}

void Moe(Stream stream, Workspace& workspace, const MoeArgs& args) {
  const size_t mark = workspace.mark();
  const int64_t tokens = args.x.rows(), k = args.config->router.top_k;
  int32_t* chosen = workspace.TakeArray<int32_t>(tokens * k);
  float* routing = workspace.TakeArray<float>(tokens * k);
  sm90::ChooseExperts(stream, workspace,
                      {.x = args.x,
                       .token_ids = args.token_ids,
                       .config = args.config,
                       .weights = args.weights,
                       .chosen = chosen,
                       .routing = routing});
  const int64_t step = TokensPerPass(*args.config, tokens);
  for (int64_t begin = 0; begin < tokens; begin += step) {
    const size_t pass_mark = workspace.mark();
    const int64_t count = std::min(step, tokens - begin);
    const ConstTensorView x = RowsOf(args.x, begin, count);
    const SharedResult shared = RunShared(stream, workspace, *args.config, *args.weights, x);
    RunPass(stream, workspace,
            {.out = RowsOf(args.out, begin, count),
             .x = x,
             .chosen = chosen + begin * k,
             .weights = routing + begin * k,
             .config = args.config,
             .experts = &args.weights->experts},
            shared);
    workspace.ResetTo(pass_mark);
  }
  workspace.ResetTo(mark);
}

int64_t MoeWorkspaceBytes(const MoeConfig& config, int64_t num_experts, int64_t max_tokens) {
  const int64_t h = config.hidden_size, k = config.router.top_k, shared = config.shared_size;
  const int64_t pass = TokensPerPass(config, max_tokens), pairs = pass * k;
  const int64_t routing = max_tokens * (config.router.num_experts * 4 + k * 8);
  const int64_t tiles = (num_experts + pairs / 8 + 1) * static_cast<int64_t>(sizeof(ExpertTile));
  const int64_t rows = pairs * (h + config.expert_size) * 4 + pass * (h + 3 * shared + 1) * 4;
  const int64_t products =
      shared == 0 ? 0 : std::max(MatmulWorkspaceBytes(pass, h), MatmulWorkspaceBytes(pass, shared));
  return routing + tiles + pairs * 4 + rows + products +
         14 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops::sm90
