#pragma once
// Where the experts of one layer lie. A logical expert is what the router names; a physical expert
// is a copy of its weights on a rank. All ranks hold equally many:
//
//   E = 4 logical experts, 2 redundant ones, 3 ranks
//     physical   0 1 │ 2 3 │ 4 5        rank p / 2, place p mod 2 there
//     logical    0 1 │ 2 3 │ 0 1        0 and 1 have two replicas

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace hayate::comm {

class ExpertPlacement {
 public:
  // logical_of_physical [P]. kInvalidArgument: P is no multiple of num_ranks, a logical expert is
  // out of range or nowhere, or a rank would hold one twice.
  static Result<ExpertPlacement> Create(int num_experts, int num_ranks,
                                        std::vector<int32_t> logical_of_physical);
  // Logical experts in order, then again from the first: what stands before any load is known.
  static Result<ExpertPlacement> Trivial(int num_experts, int num_redundant, int num_ranks);
  // Balances a measured load: `counts` [num_experts], rows that went to each. Further replicas go
  // to the experts with the most rows a replica, then replicas go to ranks so that the fullest rank
  // has little. Deterministic.
  static Result<ExpertPlacement> Balanced(std::span<const int64_t> counts, int num_redundant,
                                          int num_ranks);

  int num_experts() const { return static_cast<int>(first_replica_.size()) - 1; }
  int num_physical() const { return static_cast<int>(logical_of_physical_.size()); }
  int num_ranks() const { return num_ranks_; }
  int per_rank() const { return num_physical() / num_ranks_; }
  int rank_of(int32_t physical) const { return physical / per_rank(); }
  int place_of(int32_t physical) const { return physical % per_rank(); }

  std::span<const int32_t> logical_of_physical() const { return logical_of_physical_; }
  // The logical experts of a rank, by place.
  std::span<const int32_t> of_rank(int rank) const {
    return std::span(logical_of_physical_)
        .subspan(static_cast<size_t>(rank * per_rank()), static_cast<size_t>(per_rank()));
  }
  // Ascending.
  std::span<const int32_t> replicas(int32_t logical) const {
    const auto l = static_cast<size_t>(logical);
    return std::span(replicas_).subspan(
        static_cast<size_t>(first_replica_[l]),
        static_cast<size_t>(first_replica_[l + 1] - first_replica_[l]));
  }
  // Which replica takes a row: in turns by a number of the row, so that each gets an equal share
  // and every rank knows where a row went.
  int32_t ReplicaFor(int32_t logical, int64_t row) const {
    const std::span<const int32_t> all = replicas(logical);
    return all[static_cast<size_t>(row % static_cast<int64_t>(all.size()))];
  }

  // Rows that each rank computes when logical expert e gets counts[e], shared evenly by its
  // replicas.
  std::vector<double> LoadPerRank(std::span<const int64_t> counts) const;
  // Mean of those ÷ the fullest: 1 is even, 1 ÷ ranks is all on one. 1 without any rows.
  double Balance(std::span<const int64_t> counts) const;

  // The same sets of experts, given to ranks and places so that few move from where they lie in
  // `before`, a placement of as many experts, copies and ranks. Deterministic.
  ExpertPlacement Following(const ExpertPlacement& before) const;

 private:
  ExpertPlacement() = default;

  int num_ranks_ = 1;
  std::vector<int32_t> logical_of_physical_;  // [P]
  std::vector<int32_t> first_replica_;        // [E + 1]
  std::vector<int32_t> replicas_;             // [P], by logical expert
};

// How the experts of a model are placed, before its layers are known: what --init-expert-location
// and --ep-num-redundant-experts say. Immutable and shared by the ranks.
struct ExpertPlan {
  int num_ranks = 1;
  int num_redundant = 0;
  // Per layer of the model; at most one of the two is there. A layer without experts is ignored.
  std::vector<std::vector<int32_t>> physical_to_logical = {};
  std::vector<std::vector<int64_t>> logical_count = {};

  // The placement of a layer with num_experts. An error names the layer.
  Result<ExpertPlacement> Place(int layer, int num_experts) const;
};

}  // namespace hayate::comm
