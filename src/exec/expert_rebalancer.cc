#include "exec/expert_rebalancer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/moe/moe.h"

namespace hayate::exec {
namespace {

// What suits the counts better, or what is: every move costs a copy.
comm::ExpertPlacement Target(const comm::ExpertPlacement& now, std::span<const int64_t> counts) {
  const int num_redundant = now.num_physical() - now.num_experts();
  const comm::ExpertPlacement balanced =
      comm::ExpertPlacement::Balanced(counts, num_redundant, now.num_ranks()).value();
  if (balanced.Balance(counts) <= now.Balance(counts)) return now;
  return balanced.Following(now);
}

size_t BytesOf(const std::vector<std::span<std::byte>>& parts) {
  size_t bytes = 0;
  for (const auto part : parts) bytes += part.size();
  return bytes;
}

}  // namespace

double PlacedExperts::Balance(std::span<const int64_t> counts) const {
  const size_t width = counts.size() / std::max<size_t>(1, layers.size());
  double sum = 0;
  int num_layers = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const auto own = counts.subspan(layer * width, width);
    if (std::ranges::all_of(own, [](int64_t count) { return count == 0; })) continue;
    sum += layers[layer].Balance(own);
    ++num_layers;
  }
  return num_layers == 0 ? 1 : sum / num_layers;
}

Result<std::unique_ptr<ExpertRebalancer>> ExpertRebalancer::Create(
    const RebalanceOptions& options, std::vector<Rank> ranks, PlacedExperts& experts,
    std::function<std::vector<int64_t>()> counts) {
  auto rebalancer = std::unique_ptr<ExpertRebalancer>(
      new ExpertRebalancer(options, std::move(ranks), experts, std::move(counts)));
  RETURN_IF_ERROR(rebalancer->CheckLayouts());
  RETURN_IF_ERROR(rebalancer->TakeMemory());
  return rebalancer;
}

ExpertRebalancer::ExpertRebalancer(const RebalanceOptions& options, std::vector<Rank> ranks,
                                   PlacedExperts& experts,
                                   std::function<std::vector<int64_t>()> counts)
    : options_(options),
      ranks_(std::move(ranks)),
      experts_(experts),
      counts_(std::move(counts)),
      counted_(counts_()) {}

Status ExpertRebalancer::CheckLayouts() const {
  for (int layer = 0; layer < std::ssize(experts_.layers); ++layer) {
    const ops::ExpertWeights* first = ranks_[0].model->experts(layer);
    if (first == nullptr) continue;
    for (const Rank& rank : ranks_) {
      const ops::ExpertWeights& experts = *rank.model->experts(layer);
      for (size_t place = 0; place < experts.gate_up.size(); ++place) {
        if (ops::SameLayout(*first, 0, experts, place)) continue;
        return Error(ErrorCode::kUnsupported,
                     "--enable-eplb: the experts of layer {} are of different types, so they "
                     "cannot change places",
                     layer);
      }
    }
  }
  return OkStatus();
}

// Of the layer where that is the most: every expert of a rank may be another one.
Status ExpertRebalancer::TakeMemory() {
  for (const Rank& rank : ranks_) {
    size_t most = 0;
    for (int layer = 0; layer < std::ssize(experts_.layers); ++layer) {
      const ops::ExpertWeights* experts = rank.model->experts(layer);
      if (experts == nullptr) continue;
      most = std::max(most, experts->gate_up.size() * BytesOf(ops::ExpertMemory(*experts, 0)));
    }
    ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(*rank.device, most));
    arrivals_.push_back(std::move(memory));
  }
  return OkStatus();
}

bool ExpertRebalancer::Meet(const Rank& rank) const {
  if (!rank.device->status().ok()) rank.group->Poison();
  rank.group->Barrier({});
  return !rank.group->poisoned();
}

void ExpertRebalancer::Rebalance(int rank) {
  const Rank& own = ranks_[static_cast<size_t>(rank)];
  if (rank == 0) Decide();
  if (!Meet(own) || targets_.empty()) return;
  for (int layer = 0; layer < std::ssize(experts_.layers); ++layer) {
    const std::vector<Arrival> arrivals = CopyArrivals(rank, layer);
    own.device->FinishLoading();
    if (!Meet(own)) return;  // nobody reads what is written now
    PutArrivals(own, layer, arrivals);
  }
  own.device->FinishLoading();
  if (rank == 0) {
    const std::lock_guard lock(experts_.mutex);
    std::ranges::move(targets_, experts_.layers.begin());
  }
  if (Meet(own)) own.exchange->PlacementsChanged();
}

void ExpertRebalancer::Decide() {
  targets_.clear();
  const std::vector<int64_t> total = counts_();
  std::vector<int64_t> recent(total.size());
  std::ranges::transform(total, counted_, recent.begin(), std::minus());
  counted_ = total;
  const double before = experts_.Balance(recent);
  if (before > options_.max_balance) return;
  const size_t width = total.size() / experts_.layers.size();
  PlacedExperts after;
  int64_t moved = 0;
  for (size_t layer = 0; layer < experts_.layers.size(); ++layer) {
    const comm::ExpertPlacement& now = experts_.layers[layer];
    after.layers.push_back(Target(now, std::span(recent).subspan(layer * width, width)));
    const auto logical = after.layers.back().logical_of_physical();
    for (size_t p = 0; p < logical.size(); ++p) moved += logical[p] != now.logical_of_physical()[p];
  }
  if (moved == 0) return;
  rebalances_.fetch_add(1, std::memory_order_relaxed);
  moved_.fetch_add(moved, std::memory_order_relaxed);
  LOG_INFO("{} copies of experts move; mean load of a rank / fullest: {:.3f} -> {:.3f}", moved,
           before, after.Balance(recent));
  targets_ = std::move(after.layers);
}

std::vector<ExpertRebalancer::Arrival> ExpertRebalancer::CopyArrivals(int rank, int layer) const {
  std::vector<Arrival> arrivals;
  if (ranks_[0].model->experts(layer) == nullptr) return arrivals;
  const comm::ExpertPlacement& now = experts_.layers[static_cast<size_t>(layer)];
  Device& device = *ranks_[static_cast<size_t>(rank)].device;
  std::byte* to = arrivals_[static_cast<size_t>(rank)].data();
  const std::span<const int32_t> held = now.of_rank(rank);
  const std::span<const int32_t> wanted = targets_[static_cast<size_t>(layer)].of_rank(rank);
  for (size_t place = 0; place < wanted.size(); ++place) {
    if (wanted[place] == held[place]) continue;
    const int32_t from = now.replicas(wanted[place])[0];
    const models::Model& source = *ranks_[static_cast<size_t>(now.rank_of(from))].model;
    arrivals.push_back({place, to});
    for (const auto part :
         ops::ExpertMemory(*source.experts(layer), static_cast<size_t>(now.place_of(from)))) {
      device.Copy(device.load_stream(), to, part.data(), part.size());
      to += part.size();
    }
  }
  CHECK_LE(to, arrivals_[static_cast<size_t>(rank)].data() +
                   arrivals_[static_cast<size_t>(rank)].size());
  return arrivals;
}

void ExpertRebalancer::PutArrivals(const Rank& rank, int layer,
                                   const std::vector<Arrival>& arrivals) const {
  for (const Arrival& arrival : arrivals) {
    const std::byte* from = arrival.bytes;
    for (const auto part : ops::ExpertMemory(*rank.model->experts(layer), arrival.place)) {
      rank.device->Copy(rank.device->load_stream(), part.data(), from, part.size());
      from += part.size();
    }
  }
}

RebalanceStats ExpertRebalancer::stats() const {
  return {rebalances_.load(std::memory_order_relaxed), moved_.load(std::memory_order_relaxed)};
}

}  // namespace hayate::exec
