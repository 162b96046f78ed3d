#include "comm/token_exchange.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "base/error.h"

namespace hayate::comm {

namespace {

// What a rank shows between two meetings.
struct Board {
  const float* x = nullptr;
  const float* results = nullptr;
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  int64_t rows = 0;
  std::vector<int64_t> arrivals_of;  // [ranks] pairs for each rank
};

struct Shared {
  explicit Shared(int num_ranks) : boards(static_cast<size_t>(num_ranks)) {
    for (Board& board : boards) board.arrivals_of.resize(static_cast<size_t>(num_ranks));
  }
  // Board r is written by rank r before it meets the others, read by them until they meet again.
  std::vector<Board> boards;
  std::mutex mutex;
  Status failure;  // under mutex: the first
};

class LocalTokenExchange final : public TokenExchange {
 public:
  LocalTokenExchange(Group& group, std::shared_ptr<Shared> shared)
      : TokenExchange(group),
        shared_(std::move(shared)),
        next_(static_cast<size_t>(group.size())) {}

  const int32_t* ChooseReplicas(Stream stream, Workspace& workspace,
                                const ChooseReplicasArgs& args) override;
  DispatchedRows Dispatch(Stream stream, Workspace& workspace, const DispatchArgs& args) override;
  void Combine(Stream stream, ConstTensorView results, TensorView out) override;
  Status failure() const override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->failure;
  }

 private:
  const Board& BoardOf(int rank) const { return shared_->boards[static_cast<size_t>(rank)]; }
  void Show(const DispatchArgs& args);
  bool CountsAgree(const DispatchArgs& args);
  void Fail(Status status);
  void Pull(const DispatchedRows& out, int32_t* places, float* weights) const;

  const std::shared_ptr<Shared> shared_;
  // Of the exchange under way.
  int64_t width_ = 0;  // H
  int32_t choices_ = 0;
  const ExpertPlacement* placement_ = nullptr;
  std::vector<int64_t> next_;  // [ranks]
};

void LocalTokenExchange::Fail(Status status) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->failure.ok()) shared_->failure = std::move(status);
  }
  group_.Poison();
}

const int32_t* LocalTokenExchange::ChooseReplicas(Stream, Workspace& workspace,
                                                  const ChooseReplicasArgs& args) {
  int32_t* physical = workspace.TakeArray<int32_t>(args.shape.num_elements());
  for (int64_t pair = 0; pair < args.shape.num_elements(); ++pair) {
    const int64_t row = pair / args.shape[1];
    const int32_t expert = args.chosen[pair];
    // Ranks begin their turns at different replicas.
    physical[pair] = args.placement->ReplicaFor(expert, row + rank());
    const bool is_padding = args.num_rows != nullptr && args.first_row + row >= *args.num_rows;
    if (args.counts == nullptr || is_padding) continue;
    // Written by this thread alone; whoever reads wants a number, not an order.
    std::atomic_ref<int64_t> count(args.counts[expert]);
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  return physical;
}

void LocalTokenExchange::Show(const DispatchArgs& args) {
  Board& board = shared_->boards[static_cast<size_t>(rank())];
  board.x = args.x.as<float>();
  board.experts = args.experts;
  board.weights = args.weights;
  board.rows = args.x.rows();
  std::ranges::fill(board.arrivals_of, 0);
  int64_t sent = 0;
  for (int64_t row = 0; row < board.rows; ++row) {
    const int32_t* experts = args.experts + row * choices_;
    for (int32_t j = 0; j < choices_; ++j) {
      const int to = placement_->rank_of(experts[j]);
      ++board.arrivals_of[static_cast<size_t>(to)];
      if (to == rank()) continue;
      ++counters_.combined_rows;
      ++sent;
      const auto same = [&](int32_t e) { return placement_->rank_of(e) == to; };
      if (std::any_of(experts, experts + j, same)) continue;
      ++counters_.dispatched_rows;
      ++sent;
    }
  }
  ++counters_.exchanges;
  counters_.rows += board.rows;
  counters_.bytes += sent * width_ * static_cast<int64_t>(sizeof(float));
}

bool LocalTokenExchange::CountsAgree(const DispatchArgs& args) {
  for (int from = 0; from < size(); ++from) {
    const int32_t agreed = args.rows[static_cast<size_t>(from)];
    if (BoardOf(from).rows == agreed) continue;
    Fail(Error(ErrorCode::kInternal, "rank {} brought {} rows to an exchange; rank {} expects {}",
               from, BoardOf(from).rows, rank(), agreed));
    return false;
  }
  return true;
}

DispatchedRows LocalTokenExchange::Dispatch(Stream stream, Workspace& workspace,
                                            const DispatchArgs& args) {
  CHECK_EQ(args.rows.size(), static_cast<size_t>(size()));
  CHECK_EQ(args.placement->num_ranks(), size());
  width_ = args.x.shape[1];
  choices_ = args.choices;
  placement_ = args.placement;
  DispatchedRows out = {.x = {nullptr, DType::kF32, {0, width_}}};
  // What was shown last may still be read by a rank that has not seen the failure.
  if (group_.poisoned()) return out;
  Show(args);
  group_.Barrier(stream);
  if (group_.poisoned() || !CountsAgree(args)) return out;
  int64_t arrivals = 0;
  for (int from = 0; from < size(); ++from) {
    arrivals += BoardOf(from).arrivals_of[static_cast<size_t>(rank())];
  }
  counters_.arrived_rows += arrivals;
  out.x = workspace.Take(DType::kF32, {arrivals, width_});
  int32_t* places = workspace.TakeArray<int32_t>(arrivals);
  float* weights = workspace.TakeArray<float>(arrivals);
  Pull(out, places, weights);
  out.places = places;
  out.weights = weights;
  return out;
}

void LocalTokenExchange::Pull(const DispatchedRows& out, int32_t* places, float* weights) const {
  const int64_t capacity = out.x.rows();
  int64_t arrived = 0;
  for (int from = 0; from < size(); ++from) {
    const Board& board = BoardOf(from);
    for (int64_t pair = 0; pair < board.rows * choices_ && arrived < capacity; ++pair) {
      const int32_t physical = board.experts[pair];
      // Once a rank has failed, the others no longer wait before they use this memory again.
      if (physical < 0 || physical >= placement_->num_physical()) continue;
      if (placement_->rank_of(physical) != rank()) continue;
      std::memcpy(out.x.as<float>() + arrived * width_, board.x + pair / choices_ * width_,
                  static_cast<size_t>(width_) * sizeof(float));
      places[arrived] = placement_->place_of(physical);
      weights[arrived] = board.weights[pair];
      ++arrived;
    }
  }
  // What a failing rank left out: any expert will do, the step is lost.
  std::fill(places + arrived, places + capacity, 0);
  std::fill(weights + arrived, weights + capacity, 0.0f);
}

void LocalTokenExchange::Combine(Stream stream, ConstTensorView results, TensorView out) {
  if (group_.poisoned()) return;
  Board& mine = shared_->boards[static_cast<size_t>(rank())];
  mine.results = results.as<float>();
  group_.Barrier(stream);
  if (group_.poisoned()) return;
  // Results of a rank lie by sender: ours begin behind those of the ranks before us.
  for (int to = 0; to < size(); ++to) {
    int64_t begin = 0;
    for (int from = 0; from < rank(); ++from) {
      begin += BoardOf(from).arrivals_of[static_cast<size_t>(to)];
    }
    next_[static_cast<size_t>(to)] = begin;
  }
  for (int64_t pair = 0; pair < mine.rows * choices_; ++pair) {
    const int to = placement_->rank_of(mine.experts[pair]);
    const int64_t index = next_[static_cast<size_t>(to)]++;
    std::memcpy(out.as<float>() + pair * width_, BoardOf(to).results + index * width_,
                static_cast<size_t>(width_) * sizeof(float));
  }
  group_.Barrier(stream);  // nobody reads our rows or results any more
}

}  // namespace

std::vector<std::unique_ptr<TokenExchange>> TokenExchange::MakeLocal(
    std::span<const std::unique_ptr<Group>> group) {
  auto shared = std::make_shared<Shared>(static_cast<int>(group.size()));
  std::vector<std::unique_ptr<TokenExchange>> exchanges;
  for (const auto& member : group) {
    exchanges.push_back(std::make_unique<LocalTokenExchange>(*member, shared));
  }
  return exchanges;
}

int64_t TokenExchange::MaxArrivals(int64_t total_rows, int choices, int experts_per_rank) {
  return total_rows * std::min(choices, experts_per_rank);
}

int64_t TokenExchange::WorkspaceBytes(int64_t max_arrivals, int64_t row_width) {
  return max_arrivals * (row_width + 2) * static_cast<int64_t>(sizeof(float)) +
         3 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::comm
