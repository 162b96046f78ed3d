#pragma once
// Moves experts between the ranks of a replica while it serves: every `interval` steps, on the
// border between two, they are placed anew by the rows that chose them since the last time.
//
//   rank 0      decide: counts → targets ─┐                                  placements = targets
//   ─┐ all ranks                    meet ─┴ layer: copy what comes ─ meet ─ put it ─ …
//   meet ─┴ tell the exchange
//
// An expert's bytes are copied from a rank that holds it into the place of one that leaves, so
// addresses stay, and with them captured steps. Which rank computes an expert never changes a token
// (models/layers/moe.h), so neither does this.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/expert_placement.h"
#include "comm/group.h"
#include "comm/token_exchange.h"
#include "models/model.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace hayate::exec {

// Where the experts of every layer lie. Ranks read it within a step; it is written between two, by
// rank 0, who then holds the mutex for the sake of all other threads.
struct PlacedExperts {
  std::vector<comm::ExpertPlacement> layers;
  mutable std::mutex mutex;

  // ExpertPlacement::Balance of counts [layers, E], a mean over the layers that have rows. Not
  // locked.
  double Balance(std::span<const int64_t> counts) const;
};

struct RebalanceOptions {
  int64_t interval = 0;  // steps; 0: experts stay
  // Experts stay too where the ranks' mean load ÷ the fullest's, over the layers, is above this.
  double max_balance = 1.0;
};

// Any thread.
struct RebalanceStats {
  int64_t rebalances = 0;  // that moved anything
  int64_t moved = 0;       // copies of experts that went to another rank or place, all layers
};

class ExpertRebalancer {
 public:
  struct Rank {
    Device* device;      // that reaches the memory of all others
    comm::Group* group;  // of the threads of all ranks
    comm::TokenExchange* exchange;
    const models::Model* model;
  };
  // `counts` gives how often each expert of each layer was chosen since the start, [layers, E]; it
  // may lag behind. Takes memory for what comes to a rank in one layer from every device. All that
  // is given outlives the rebalancer. kUnsupported names the layer whose experts are laid out
  // differently in memory.
  static Result<std::unique_ptr<ExpertRebalancer>> Create(
      const RebalanceOptions& options, std::vector<Rank> ranks, PlacedExperts& experts,
      std::function<std::vector<int64_t>()> counts);

  // Whether the ranks call Rebalance before the step, numbered from 0.
  bool IsDue(uint64_t step) const {
    return step > 0 && step % static_cast<uint64_t>(options_.interval) == 0;
  }
  // On every rank's thread: its device has finished all steps before. Blocks until all ranks are
  // there and done.
  void Rebalance(int rank);

  RebalanceStats stats() const;

 private:
  // What comes to a rank in a layer: bytes for a place, in arrivals_ of the rank.
  struct Arrival {
    size_t place;
    std::byte* bytes;
  };
  ExpertRebalancer(const RebalanceOptions& options, std::vector<Rank> ranks, PlacedExperts& experts,
                   std::function<std::vector<int64_t>()> counts);
  Status CheckLayouts() const;
  Status TakeMemory();
  // Whether all ranks go on.
  bool Meet(const Rank& rank) const;
  void Decide();
  std::vector<Arrival> CopyArrivals(int rank, int layer) const;
  void PutArrivals(const Rank& rank, int layer, const std::vector<Arrival>& arrivals) const;

  const RebalanceOptions options_;
  const std::vector<Rank> ranks_;
  PlacedExperts& experts_;
  const std::function<std::vector<int64_t>()> counts_;
  std::vector<Buffer> arrivals_;  // [ranks], on the rank's device
  // Written by rank 0 before the ranks meet, read by all behind.
  std::vector<comm::ExpertPlacement> targets_;  // [layers]; empty: nothing moves
  std::vector<int64_t> counted_;                // when it was last decided; rank 0 alone
  // Lone numbers, hence relaxed.
  std::atomic<int64_t> rebalances_{0}, moved_{0};
};

}  // namespace hayate::exec
