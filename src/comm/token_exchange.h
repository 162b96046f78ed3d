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
// A receiver reads rows where the sender has them: ranks are threads of one process, on CPU cores
// (MakeLocal) or on GPUs that reach each other's memory (peer_token_exchange.h). Owner: the rank's
// thread. Allocates nothing but from the workspace.

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

struct ChooseReplicasArgs {
  const ExpertPlacement* placement = nullptr;
  const int32_t* chosen = nullptr;  // [n, K] logical experts
  Shape shape;                      // n, K
  // How often each logical expert was chosen, [E], added to; null: nobody counts. Read by any
  // thread, on CUDA in copies.
  int64_t* counts = nullptr;
  // Rows from first_row + t = *num_rows on are padding and not counted; null: none are.
  const int32_t* num_rows = nullptr;
  int32_t first_row = 0;
};

struct DispatchArgs {
  ConstTensorView x;                 // [n, H] f32 or, on CUDA, bf16: this rank's rows; its memory
                                     // stays until Combine is done, and so below
  int32_t choices = 0;               // K
  const int32_t* experts = nullptr;  // [n, K] physical experts
  const float* weights = nullptr;    // [n, K]
  std::span<const int32_t> rows;     // [ranks]: how many rows each rank brings
  const ExpertPlacement* placement = nullptr;
};

// What arrived at a rank, by sender, then row, then choice: on the CPU a row for each choice of an
// expert that lies here. On CUDA, where the host knows how many rows there are and not which of
// them come here, every row of every rank has a place, and its K choices of experts elsewhere say
// −1; a row all of whose choices do is unspecified.
struct DispatchedRows {
  TensorView x;                     // [R, H]
  int32_t choices = 1;              // of a row: 1 or K
  const int32_t* places = nullptr;  // [R, choices]: which of this rank's experts, or −1
  const float* weights = nullptr;   // [R, choices]
};

// What a rank's rows took in all, without what stayed on it. Of CPU ranks; elsewhere zero.
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
  // One for every rank of `group`, whose members outlive it; all on CPU cores of one process.
  static std::vector<std::unique_ptr<TokenExchange>> MakeLocal(
      std::span<const std::unique_ptr<Group>> group);
  virtual ~TokenExchange() = default;

  // [n, K] from the workspace: the copies of this rank's chosen experts that are to compute its
  // rows, in turns by row and rank.
  virtual const int32_t* ChooseReplicas(Stream stream, Workspace& workspace,
                                        const ChooseReplicasArgs& args) = 0;
  // Takes the arrived rows, places and weights from the workspace.
  virtual DispatchedRows Dispatch(Stream stream, Workspace& workspace,
                                  const DispatchArgs& args) = 0;
  // `results` [R × choices, H], of the type of x, are of the last Dispatch's rows, in their order.
  // out [n × K, H]: result of choice j of row t at t × K + j.
  virtual void Combine(Stream stream, ConstTensorView results, TensorView out) = 0;
  // To be called on every rank where placements changed: as many copies as before lie elsewhere.
  // Nothing of the rank is queued. May block; captured calls follow.
  virtual void PlacementsChanged() {}

  // The most rows that arrive at a CPU rank when all ranks together bring `total_rows`. At a GPU
  // all of them do, with `choices` results each.
  static int64_t MaxArrivals(int64_t total_rows, int choices, int experts_per_rank);
  static int64_t WorkspaceBytes(int64_t max_arrivals, int64_t row_width);

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  // Why the group was poisoned from here, or OK. Any thread.
  virtual Status failure() const = 0;
  const ExchangeCounters& counters() const { return counters_; }

 protected:
  explicit TokenExchange(Group& group) : group_(group) {}

  Group& group_;
  ExchangeCounters counters_;
};

}  // namespace hayate::comm
