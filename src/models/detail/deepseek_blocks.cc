#include "models/detail/deepseek_blocks.h"

#include <algorithm>
#include <numeric>

#include "models/detail/held_experts.h"

namespace hayate::models {
namespace {

constexpr int64_t kColumnUnit = 32;  // quantised columns are cut at multiples of it
constexpr auto kExact = ops::MatmulPrecision::kExact;

int64_t BytesOf(const Buffer& buffer) { return static_cast<int64_t>(buffer.size()); }

class ExpertLoader {
 public:
  ExpertLoader(VendorTensors& tensors, const ExpertsShape& shape)
      : tensors_(tensors), shape_(shape) {}

  Result<ops::PackedMatrix> GateUp(const std::string& prefix, Range features) {
    const int64_t h = shape_.hidden_size, f = shape_.expert_size;
    return tensors_.Packed({{prefix + ".w1", f, features}, {prefix + ".w3", f, features}}, h,
                           {0, h}, tensors_.options().precision);
  }
  Result<ops::PackedMatrix> Down(const std::string& prefix, Range features) {
    const int64_t h = shape_.hidden_size;
    return tensors_.Packed({{prefix + ".w2", h, {0, h}}}, shape_.expert_size, features,
                           tensors_.options().precision);
  }

 private:
  VendorTensors& tensors_;
  const ExpertsShape& shape_;
};

}  // namespace

ops::HyperConnection HyperWeights::View(float norm_eps, float eps, int32_t iterations) const {
  return {.fn = &*fn.weights,
          .base = reinterpret_cast<const float*>(base.data()),
          .scale = reinterpret_cast<const float*>(scale.data()),
          .norm_eps = norm_eps,
          .eps = eps,
          .iterations = iterations};
}

int64_t HyperWeights::bytes() const { return fn.bytes() + BytesOf(base) + BytesOf(scale); }

Result<HyperWeights> LoadHyper(VendorTensors& tensors, const std::string& prefix, int64_t outputs,
                               int64_t scales, int64_t hidden_size) {
  HyperWeights hyper;
  const int64_t width = ops::kHyperStreams * hidden_size;
  ASSIGN_OR_RETURN(const ConstTensorView fn, tensors.Tensor(prefix + "_fn", {outputs, width}));
  const ops::MatrixPiece piece = ops::MatrixPiece::Whole(fn);
  ASSIGN_OR_RETURN(hyper.fn.weights,
                   ops::PackMatrix(*tensors.options().device, {&piece, 1}, kExact));
  ASSIGN_OR_RETURN(hyper.base, tensors.Floats(prefix + "_base", {outputs}));
  ASSIGN_OR_RETURN(hyper.scale, tensors.Floats(prefix + "_scale", {scales}));
  return hyper;
}

int64_t GroupedOutput::bytes() const { return up.bytes() + down.bytes(); }

Range SplitGroups(const GroupedOutputShape& shape, const LoadOptions& options) {
  const int64_t unit = kColumnUnit / std::gcd<int64_t>(shape.o_rank, kColumnUnit);
  return SplitUnits(shape.groups, unit, options.rank, options.num_ranks);
}

Result<GroupedOutput> LoadGroupedOutput(VendorTensors& tensors, const std::string& prefix,
                                        const GroupedOutputShape& shape, Range groups) {
  GroupedOutput output;
  const auto precision = tensors.options().precision;
  const int64_t all = shape.groups * shape.o_rank;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const Range rows = {group * shape.o_rank, (group + 1) * shape.o_rank};
    ASSIGN_OR_RETURN(output.down.matrices.emplace_back(),
                     tensors.Packed({{prefix + ".wo_a", all, rows}}, shape.group_width,
                                    {0, shape.group_width}, precision));
  }
  RETURN_IF_ERROR(ops::PlaceGroup(*tensors.options().device, output.down));
  const Range columns = {groups.begin * shape.o_rank, groups.end * shape.o_rank};
  ASSIGN_OR_RETURN(output.up,
                   tensors.Matrix({{prefix + ".wo_b", shape.hidden_size, {0, shape.hidden_size}}},
                                  all, columns, precision));
  return output;
}

void ApplyGroupedOutput(Stream stream, Workspace& workspace, const GroupedOutput& output,
                        ConstTensorView heads, TensorView out) {
  const size_t mark = workspace.mark();
  const int64_t tokens = heads.shape[0], all = heads.shape[1] * heads.shape[2];
  const auto groups = static_cast<int64_t>(output.down.matrices.size());
  const int64_t o_rank = output.down.matrices[0].n;
  TensorView low = workspace.Take(heads.dtype, {tokens, groups, o_rank});
  heads.shape = {tokens, groups, all / groups};
  ops::GroupedMatmul(stream, workspace, {.out = low, .x = heads, .w = &output.down});
  low.shape = {tokens, groups * o_rank};
  Apply(stream, workspace, output.up, low, out);
  workspace.ResetTo(mark);
}

int64_t GroupedOutputWorkspaceBytes(const GroupedOutputShape& shape, int64_t max_tokens) {
  const int64_t low = shape.groups * shape.o_rank;
  return max_tokens * low * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(Workspace::kAlignment) +
         std::max(ops::GroupedMatmulWorkspaceBytes(max_tokens, shape.group_width),
                  ops::MatmulWorkspaceBytes(max_tokens, low));
}

ExpertsShape SplitExperts(int32_t hidden_size, int32_t num_experts, int32_t expert_size,
                          const LoadOptions& options) {
  return {.hidden_size = hidden_size,
          .num_experts = num_experts,
          .expert_size = expert_size,
          .experts = options.experts.empty()
                         ? SplitUnits(num_experts, 1, options.rank, options.num_ranks)
                         : Range{0, NumHeldExperts(options, num_experts)},
          .num_dp_ranks = NumDpRanks(options),
          .shared = SharedFeaturesOf(options, expert_size, kColumnUnit)};
}

Status LoadExperts(VendorTensors& tensors, const std::string& prefix, const ExpertsShape& shape,
                   int index, ops::MoeWeights& layer) {
  ExpertLoader loader(tensors, shape);
  ASSIGN_OR_RETURN(layer.gate,
                   tensors.Packed({{prefix + ".gate", shape.num_experts, {0, shape.num_experts}}},
                                  shape.hidden_size, {0, shape.hidden_size}, kExact));
  const Range all = {0, shape.expert_size};
  const HeldExperts held = HeldExpertsOf(tensors.options(), index, shape.num_experts);
  layer.experts.first = held.first;
  for (const int32_t e : held.ids) {
    const std::string expert = prefix + ".experts." + std::to_string(e);
    ASSIGN_OR_RETURN(layer.experts.gate_up.emplace_back(), loader.GateUp(expert, all));
    ASSIGN_OR_RETURN(layer.experts.down.emplace_back(), loader.Down(expert, all));
  }
  RETURN_IF_ERROR(ops::PlaceExperts(*tensors.options().device, layer.experts));
  if (shape.shared.size() == 0) return OkStatus();
  ASSIGN_OR_RETURN(layer.shared_gate_up, loader.GateUp(prefix + ".shared_experts", shape.shared));
  ASSIGN_OR_RETURN(layer.shared_down, loader.Down(prefix + ".shared_experts", shape.shared));
  return OkStatus();
}

}  // namespace hayate::models
