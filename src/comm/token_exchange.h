#pragma once
// How the rows of a sparse layer reach the ranks of their experts and come back. All ranks of the
// group call it in turn, once a layer, those without rows too:
//
//   rank s   Dispatch: row x[t] to the rank of each physical expert chosen for it
//   rank d   runs its experts over what arrived, a result row for every row
//   rank s   Combine: the results of its own rows, by row and choice
//
// Nothing is summed on the way: the caller adds a row's results in an order of its own, so a row
// has the same bits wherever its experts lie and whatever else travels.
//
// The ranks know beforehand, from the step's plan, how many rows each brings. A rank that brings
// another number, or that cannot go on, poisons the group and all end with an error.
//
// This is the exchange of ranks that share memory: a receiver reads rows where the sender has them.
// Owner: the rank's thread. Allocates nothing but from the workspace.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/expert_placement.h"
#include "comm/group.h"
#include "tensor/tensor_view.h"
#include "tensor/workspace.h"

namespace hayate::comm {

struct DispatchArgs {
  ConstTensorView x;                 // [n, H] f32: this rank's rows; its memory stays until
                                     // Combine returns, and so below
  int32_t choices = 0;               // K
  const int32_t* experts = nullptr;  // [n, K] physical experts
  const float* weights = nullptr;    // [n, K]
  std::span<const int32_t> rows;     // [ranks]: how many rows each rank brings
  const ExpertPlacement* placement = nullptr;
};

// What arrived at a rank, by sender, then row, then choice.
struct DispatchedRows {
  TensorView x;                     // [P, H]
  const int32_t* places = nullptr;  // [P]: which of this rank's experts
  const float* weights = nullptr;   // [P]
};

// What a rank's rows took in all, without what stayed on it.
struct ExchangeCounters {
  int64_t exchanges = 0;  // dispatches
  int64_t rows = 0;       // this rank's own
  // Dispatched: a row counts once for every rank that needs it. Combined: one row a choice.
  int64_t dispatched_rows = 0;
  int64_t combined_rows = 0;
  int64_t bytes = 0;         // of both, as f32 rows
  int64_t arrived_rows = 0;  // that this rank's experts compute, one a choice, its own among them
};

class TokenExchange {
 public:
  // One for every rank of `group`, whose members outlive it; all in one process.
  static std::vector<std::unique_ptr<TokenExchange>> MakeLocal(
      std::span<const std::unique_ptr<Group>> group);

  // Takes the arrived rows, places and weights from the workspace. P is at most MaxArrivals.
  DispatchedRows Dispatch(Stream stream, Workspace& workspace, const DispatchArgs& args);
  // `results` [P, H] f32 are of the last Dispatch's rows, in their order. out [n × K, H]: result of
  // choice j of row t at t × K + j.
  void Combine(Stream stream, ConstTensorView results, TensorView out);

  // The most rows that can arrive when all ranks together bring `total_rows`.
  static int64_t MaxArrivals(int64_t total_rows, int choices, int experts_per_rank);
  static int64_t WorkspaceBytes(int64_t max_arrivals, int64_t row_width);

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  // Why the group was poisoned from here, or OK. Any thread.
  Status failure() const;
  const ExchangeCounters& counters() const { return counters_; }

 private:
  struct Shared;
  // What a rank shows between two meetings.
  struct Board {
    const float* x = nullptr;
    const float* results = nullptr;
    const int32_t* experts = nullptr;
    const float* weights = nullptr;
    int64_t rows = 0;
    std::vector<int64_t> arrivals_of;  // [ranks] pairs for each rank
  };
  TokenExchange(Group& group, std::shared_ptr<Shared> shared);
  const Board& BoardOf(int rank) const;
  void Show(const DispatchArgs& args);
  bool CountsAgree(const DispatchArgs& args);
  void Fail(Status status);
  void Pull(const DispatchedRows& out, int32_t* places, float* weights) const;

  Group& group_;
  const std::shared_ptr<Shared> shared_;
  // Of the exchange under way.
  int64_t width_ = 0;  // H
  int32_t choices_ = 0;
  const ExpertPlacement* placement_ = nullptr;
  std::vector<int64_t> next_;  // [ranks]
  ExchangeCounters counters_;
};

}  // namespace hayate::comm
