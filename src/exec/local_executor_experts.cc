// Of LocalExecutor: where experts lie, how often rows chose them, and what moves them.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "exec/local_executor_rank.h"

namespace hayate::exec {

Status LocalExecutor::PlaceExperts(const weights::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(expert_shape_, models::ReadExpertShape(checkpoint));
  if (!layout_of_ranks_.exchanges() || expert_shape_.num_experts == 0) return OkStatus();
  options_.expert_plan.num_ranks = options_.num_ranks;
  for (int layer = 0; layer < expert_shape_.num_layers; ++layer) {
    ASSIGN_OR_RETURN(auto placement, options_.expert_plan.Place(layer, expert_shape_.num_experts));
    placed_experts_.layers.push_back(std::move(placement));
  }
  return OkStatus();
}

Status LocalExecutor::MakeExpertCounts() {
  // The host does not see what the rows of a GPU choose, unless they travel.
  const bool counted = options_.device == DeviceKind::kCpu || !placed_experts_.layers.empty();
  const auto count = static_cast<size_t>(expert_shape_.num_layers * expert_shape_.num_experts);
  if (!counted || count == 0) return OkStatus();
  for (const auto& rank : ranks_) {
    ASSIGN_OR_RETURN(rank->counts_memory,
                     Buffer::Allocate(*rank->device, count * sizeof(int64_t), MemoryKind::kPinned));
    rank->expert_counts = {reinterpret_cast<int64_t*>(rank->counts_memory.data()), count};
    std::ranges::fill(rank->expert_counts, 0);
  }
  return OkStatus();
}

ReplicaPlace LocalExecutor::PlaceOf(Rank& rank) const {
  return {.layout = layout_of_ranks_,
          .rank = rank.index,
          .all = layout_of_ranks_.exchanges() ? rank.group.get() : nullptr,
          .exchange = rank.exchange.get(),
          .placements = placed_experts_.layers,
          .expert_counts = rank.expert_counts};
}

std::vector<int64_t> LocalExecutor::ExpertCounts() const {
  std::vector<int64_t> sum(ranks_[0]->expert_counts.size(), 0);
  for (const auto& rank : ranks_) {
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += std::atomic_ref(rank->expert_counts[i]).load(std::memory_order_relaxed);
    }
  }
  return sum;
}

double LocalExecutor::ExpertBalance(std::span<const int64_t> counts) const {
  const std::lock_guard lock(placed_experts_.mutex);
  return placed_experts_.Balance(counts);
}

Status LocalExecutor::MakeRebalancer() {
  if (options_.rebalance.interval == 0) return OkStatus();
  if (options_.device == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(auto threads, comm::MakeLocalGroup(options_.num_ranks));
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->thread_group = std::move(threads[i]);
  }
  std::vector<ExpertRebalancer::Rank> ranks;
  for (const auto& rank : ranks_) {
    ranks.push_back({.device = rank->device.get(),
                     .group = &rank->threads(),
                     .exchange = rank->exchange.get(),
                     .model = rank->model.get()});
  }
  ASSIGN_OR_RETURN(rebalancer_,
                   ExpertRebalancer::Create(options_.rebalance, std::move(ranks), placed_experts_,
                                            [this] { return ExpertCounts(); }));
  return OkStatus();
}

RebalanceStats LocalExecutor::rebalance_stats() const {
  return rebalancer_ == nullptr ? RebalanceStats{} : rebalancer_->stats();
}

}  // namespace hayate::exec
