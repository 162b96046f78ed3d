#include "models/layers/moe.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "base/check.h"
#include "ops/zero/zero.h"
#include "tensor/cuda_build.h"

namespace hayate::models {
namespace {

// Rows [begin, begin + count) of a tensor.
TensorView RowsOf(const TensorView& tensor, int64_t begin, int64_t count) {
  const int64_t width = tensor.shape[1];
  return {tensor.data + RowBytes(tensor.dtype, begin * width), tensor.dtype, Shape{count, width}};
}
ConstTensorView RowsOf(const ConstTensorView& tensor, int64_t begin, int64_t count) {
  const int64_t width = tensor.shape[1];
  return {tensor.data + RowBytes(tensor.dtype, begin * width), tensor.dtype, Shape{count, width}};
}

// Which of its group's rows a rank sends.
struct Share {
  int64_t begin = 0;
  int64_t count = 0;
};
Share ShareOf(const ForwardContext& context, std::span<const int32_t> rows_per_rank) {
  const auto rank = static_cast<size_t>(context.exchange->rank());
  const auto first = rows_per_rank.begin() + (context.exchange->rank() - context.group->rank());
  return {std::accumulate(first, rows_per_rank.begin() + static_cast<ptrdiff_t>(rank), int64_t{0}),
          rows_per_rank[rank]};
}

// Of the layer, [E] or empty.
std::span<int64_t> CountsOf(const ForwardContext& context, const MoeCall& call) {
  if (context.expert_counts.empty() || call.layer < 0) return {};
  const auto experts = static_cast<size_t>(call.config->router.num_experts);
  return context.expert_counts.subspan(static_cast<size_t>(call.layer) * experts, experts);
}

void CountExperts(std::span<int64_t> counts, std::span<const int32_t> chosen) {
  for (const int32_t expert : chosen) {
    // Written by this thread alone; whoever reads wants a number, not an order.
    std::atomic_ref<int64_t> count(counts[static_cast<size_t>(expert)]);
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

struct Choice {
  int32_t* experts = nullptr;  // [T, K]
  float* weights = nullptr;    // [T, K]
};
Choice Choose(const ForwardContext& context, const MoeCall& call, ConstTensorView x,
              const int32_t* token_ids) {
  Workspace& workspace = *context.workspace;
  const int64_t pairs = x.rows() * call.config->router.top_k;
  const Choice choice = {workspace.TakeArray<int32_t>(pairs), workspace.TakeArray<float>(pairs)};
  if (pairs == 0) return choice;
  ops::ChooseExperts(context.stream, workspace,
                     {.x = x,
                      .token_ids = token_ids,
                      .config = call.config,
                      .weights = call.weights,
                      .chosen = choice.experts,
                      .routing = choice.weights});
  return choice;
}

// The step without an exchange, in parts, for the counts. On the CPU.
void RunCounted(const ForwardContext& context, const MoeCall& call, const ops::MoeArgs& args,
                std::span<int64_t> counts) {
  const Choice choice = Choose(context, call, call.x, call.token_ids);
  const int64_t pairs = call.x.rows() * call.config->router.top_k;
  CountExperts(counts, {choice.experts, static_cast<size_t>(pairs)});
  ops::RunExperts(context.stream, *context.workspace,
                  {.out = call.out,
                   .x = call.x,
                   .chosen = choice.experts,
                   .weights = choice.weights,
                   .config = call.config,
                   .experts = &call.weights->experts});
  ops::AddSharedExpert(context.stream, *context.workspace, args);
}

// The share's rows to their experts and back; `results` [n · K, H] by row and choice.
void Exchange(const ForwardContext& context, const MoeCall& call, const Share& share,
              ConstTensorView x, const Choice& choice, TensorView results) {
  Workspace& workspace = *context.workspace;
  const comm::ExpertPlacement& placement = context.placements[static_cast<size_t>(call.layer)];
  const int32_t k = call.config->router.top_k;
  const std::span<int64_t> counts = CountsOf(context, call);
  const int32_t* physical =
      context.exchange->ChooseReplicas(context.stream, workspace,
                                       {.placement = &placement,
                                        .chosen = choice.experts,
                                        .shape = {x.rows(), k},
                                        .counts = counts.empty() ? nullptr : counts.data(),
                                        .num_rows = context.num_unpadded,
                                        .first_row = static_cast<int32_t>(share.begin)});
  const comm::DispatchedRows arrived = context.exchange->Dispatch(context.stream, workspace,
                                                                  {.x = x,
                                                                   .choices = k,
                                                                   .experts = physical,
                                                                   .weights = choice.weights,
                                                                   .rows = call.rows_per_rank,
                                                                   .placement = &placement});
  ops::MoeConfig here = *call.config;
  here.router.top_k = arrived.choices;
  const TensorView computed =
      workspace.Take(x.dtype, {arrived.x.rows() * arrived.choices, x.shape[1]});
  ops::RunExpertPairs(context.stream, workspace,
                      {.out = computed,
                       .x = arrived.x,
                       .chosen = arrived.places,
                       .weights = arrived.weights,
                       .config = &here,
                       .experts = &call.weights->experts});
  context.exchange->Combine(context.stream, computed, results);
}

}  // namespace

void ApplyMoe(const ForwardContext& context, const MoeCall& call) {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const ops::MoeArgs whole = {.out = call.out,
                              .x = call.x,
                              .token_ids = call.token_ids,
                              .config = call.config,
                              .weights = call.weights};
  if (context.exchange == nullptr) {
    const std::span<int64_t> counts = CountsOf(context, call);
    if (!counts.empty() && context.group->rank() == 0) {
      RunCounted(context, call, whole, counts);
    } else {
      ops::Moe(context.stream, workspace, whole);
    }
    return workspace.ResetTo(mark);
  }

  const Share share = ShareOf(context, call.rows_per_rank);
  CHECK_LE(share.begin + share.count, call.x.rows());
  if (share.count < call.x.rows()) {
    ops::Zero(context.stream, call.out);
  }
  const ConstTensorView x = RowsOf(call.x, share.begin, share.count);
  const TensorView out = RowsOf(call.out, share.begin, share.count);
  const int32_t* token_ids = call.token_ids == nullptr ? nullptr : call.token_ids + share.begin;
  const Choice choice = Choose(context, call, x, token_ids);
  const int32_t k = call.config->router.top_k;
  const TensorView results = workspace.Take(x.dtype, {share.count * k, x.shape[1]});
  Exchange(context, call, share, x, choice, results);
  if (share.count > 0) {
    ops::CombineExperts(
        context.stream, workspace,
        {.moe = {.out = out, .x = x, .config = call.config, .weights = call.weights},
         .rows = results,
         .chosen = choice.experts});
  }
  workspace.ResetTo(mark);
}

void JoinMoe(const ForwardContext& context, const MoeCall& call) {
  if (context.exchange == nullptr) return;
  MoeCall none = call;
  none.out = {nullptr, call.x.dtype, call.x.shape};
  ApplyMoe(context, none);
}

int64_t MoeLayerWorkspaceBytes(const ops::MoeConfig& config, int64_t num_experts,
                               int64_t max_tokens, int num_dp_ranks) {
  if (num_dp_ranks == 0) return ops::MoeWorkspaceBytes(config, num_experts, max_tokens);
  const int32_t k = config.router.top_k;
  int64_t arrivals =
      comm::TokenExchange::MaxArrivals(max_tokens * num_dp_ranks, k, static_cast<int>(num_experts));
  // On a GPU every choice of every row has its place.
  if constexpr (kCudaBuild) arrivals = std::max(arrivals, max_tokens * num_dp_ranks * k);
  const int64_t row = config.hidden_size * static_cast<int64_t>(sizeof(float));
  // The share's choice and results; what arrives and what becomes of it; the experts' own.
  return max_tokens * k * (row + 12) + comm::TokenExchange::WorkspaceBytes(arrivals, row / 4) +
         arrivals * row + ops::MoeWorkspaceBytes(config, num_experts, max_tokens) +
         arrivals * static_cast<int64_t>(sizeof(int64_t)) +
         8 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
