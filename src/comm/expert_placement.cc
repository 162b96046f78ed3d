#include "comm/expert_placement.h"

#include <algorithm>
#include <numeric>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"

namespace hayate::comm {
namespace {

// Replicas on their way to ranks.
class Packing {
 public:
  Packing(std::span<const int64_t> counts, int num_physical, int num_ranks)
      : capacity_(num_physical / num_ranks),
        share_(counts.size()),
        load_(static_cast<size_t>(num_ranks), 0.0),
        held_(static_cast<size_t>(num_ranks)) {
    Replicate(counts, num_physical, num_ranks);
  }

  std::vector<int32_t> Pack() {
    for (const int32_t expert : LargestFirst()) Add(expert);
    Improve();
    std::vector<int32_t> logical_of_physical;
    for (std::vector<int32_t>& experts : held_) {
      std::ranges::sort(experts);
      logical_of_physical.insert(logical_of_physical.end(), experts.begin(), experts.end());
    }
    return logical_of_physical;
  }

 private:
  // share_[e]: rows of a replica of e.
  void Replicate(std::span<const int64_t> counts, int num_physical, int num_ranks) {
    num_replicas_.assign(counts.size(), 1);
    for (size_t e = 0; e < counts.size(); ++e) share_[e] = static_cast<double>(counts[e]);
    for (auto more = num_physical - std::ssize(counts); more > 0; --more) {
      size_t hottest = counts.size();
      for (size_t e = 0; e < counts.size(); ++e) {
        if (num_replicas_[e] == num_ranks) continue;  // on every rank already
        if (hottest == counts.size() || share_[e] > share_[hottest]) hottest = e;
      }
      ++num_replicas_[hottest];
      share_[hottest] = static_cast<double>(counts[hottest]) / num_replicas_[hottest];
    }
  }

  std::vector<int32_t> LargestFirst() const {
    std::vector<int32_t> order(share_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return share(a) > share(b); });
    std::vector<int32_t> replicas;
    for (const int32_t e : order) {
      replicas.insert(replicas.end(), static_cast<size_t>(num_replicas_[static_cast<size_t>(e)]),
                      e);
    }
    return replicas;
  }

  double share(int32_t expert) const { return share_[static_cast<size_t>(expert)]; }
  bool Holds(size_t rank, int32_t expert) const {
    return std::ranges::find(held_[rank], expert) != held_[rank].end();
  }
  bool HasRoom(size_t rank) const { return std::ssize(held_[rank]) < capacity_; }

  // To the emptiest rank with room that has no replica of it yet.
  void Add(int32_t expert) {
    size_t best = held_.size();
    for (size_t rank = 0; rank < held_.size(); ++rank) {
      if (!HasRoom(rank) || Holds(rank, expert)) continue;
      if (best == held_.size() || load_[rank] < load_[best]) best = rank;
    }
    if (best == held_.size()) return AddBySwap(expert);
    Put(best, expert);
  }

  // Every rank with room has a replica already. Some rank without one is full, so it holds more
  // experts than the rank with room and thus one that can move there.
  void AddBySwap(int32_t expert) {
    size_t room = 0, full = 0;
    while (!HasRoom(room)) ++room;
    while (Holds(full, expert)) ++full;
    const auto moved =
        std::ranges::find_if(held_[full], [&](int32_t e) { return !Holds(room, e); });
    const int32_t other = *moved;
    held_[full].erase(moved);
    load_[full] -= share(other);
    Put(room, other);
    Put(full, expert);
  }

  void Put(size_t rank, int32_t expert) {
    held_[rank].push_back(expert);
    load_[rank] += share(expert);
  }

  // Exchanges one expert of the fullest rank for one of another, as long as that lowers the larger
  // load of the two.
  void Improve() {
    for (int64_t swaps = 4 * std::ssize(share_); swaps > 0; --swaps) {
      const auto fullest = static_cast<size_t>(std::ranges::max_element(load_) - load_.begin());
      if (!SwapOne(fullest)) return;
    }
  }

  bool SwapOne(size_t from) {
    double best = load_[from];
    size_t best_rank = from, best_i = 0, best_j = 0;
    for (size_t to = 0; to < held_.size(); ++to) {
      if (to == from) continue;
      for (size_t i = 0; i < held_[from].size(); ++i) {
        for (size_t j = 0; j < held_[to].size(); ++j) {
          const int32_t give = held_[from][i], take = held_[to][j];
          const double moved = share(give) - share(take);
          const double larger = std::max(load_[from] - moved, load_[to] + moved);
          // By a part in a million at least: rounding must not keep two experts going to and fro.
          if (moved <= 0 || larger >= best * (1 - 1e-6)) continue;
          if (Holds(to, give) || Holds(from, take)) continue;
          best = larger, best_rank = to, best_i = i, best_j = j;
        }
      }
    }
    if (best_rank == from) return false;
    const double moved = share(held_[from][best_i]) - share(held_[best_rank][best_j]);
    std::swap(held_[from][best_i], held_[best_rank][best_j]);
    load_[from] -= moved;
    load_[best_rank] += moved;
    return true;
  }

  const int64_t capacity_;
  std::vector<double> share_;               // [E]
  std::vector<int> num_replicas_;           // [E]
  std::vector<double> load_;                // [R]
  std::vector<std::vector<int32_t>> held_;  // [R]
};

// Which rank's set in `after` goes to each rank of `before`: greedily those with most in common.
std::vector<int> MatchRanks(const ExpertPlacement& after, const ExpertPlacement& before) {
  struct Pair {
    int common, rank, set;
  };
  std::vector<Pair> pairs;
  for (int rank = 0; rank < before.num_ranks(); ++rank) {
    for (int set = 0; set < after.num_ranks(); ++set) {
      const auto held = after.of_rank(set);
      const auto common = std::ranges::count_if(before.of_rank(rank), [&](int32_t expert) {
        return std::ranges::find(held, expert) != held.end();
      });
      pairs.push_back({static_cast<int>(common), rank, set});
    }
  }
  std::ranges::stable_sort(pairs, std::ranges::greater(), &Pair::common);
  std::vector<int> set_of(static_cast<size_t>(before.num_ranks()), -1);
  std::vector<bool> taken(set_of.size());
  for (const Pair& pair : pairs) {
    int& set = set_of[static_cast<size_t>(pair.rank)];
    if (set >= 0 || taken[static_cast<size_t>(pair.set)]) continue;
    set = pair.set;
    taken[static_cast<size_t>(pair.set)] = true;
  }
  return set_of;
}

Status CheckCounts(int64_t num_experts, int64_t num_physical, int num_ranks) {
  const int64_t redundant = num_physical - num_experts;
  if (num_experts < 1 || num_ranks < 1 || redundant < 0) {
    return Error(ErrorCode::kInvalidArgument, "{} copies of {} experts on {} ranks", num_physical,
                 num_experts, num_ranks);
  }
  if (num_physical % num_ranks != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "{} experts and {} redundant ones do not divide over {} ranks; "
                 "--ep-num-redundant-experts {} would",
                 num_experts, redundant, num_ranks,
                 AlignUp<int64_t>(num_physical, num_ranks) - num_experts);
  }
  if (num_physical > num_experts * num_ranks) {
    return Error(ErrorCode::kInvalidArgument,
                 "{} redundant experts: {} ranks that hold all {} experts have {} copies",
                 redundant, num_ranks, num_experts, num_experts * num_ranks - num_experts);
  }
  return OkStatus();
}

}  // namespace

Result<ExpertPlacement> ExpertPlacement::Create(int num_experts, int num_ranks,
                                                std::vector<int32_t> logical_of_physical) {
  const int64_t num_physical = std::ssize(logical_of_physical);
  RETURN_IF_ERROR(CheckCounts(num_experts, num_physical, num_ranks));
  const int64_t per_rank = num_physical / num_ranks;
  std::vector<int64_t> last_rank(static_cast<size_t>(num_experts), -1);
  ExpertPlacement placement;
  placement.num_ranks_ = num_ranks;
  placement.first_replica_.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t p = 0; p < num_physical; ++p) {
    const int32_t logical = logical_of_physical[static_cast<size_t>(p)];
    if (logical < 0 || logical >= num_experts) {
      return Error(ErrorCode::kInvalidArgument, "physical expert {} is expert {} of {}", p, logical,
                   num_experts);
    }
    int64_t& last = last_rank[static_cast<size_t>(logical)];
    if (last == p / per_rank) {
      return Error(ErrorCode::kInvalidArgument, "rank {} holds expert {} twice", last, logical);
    }
    last = p / per_rank;
    ++placement.first_replica_[static_cast<size_t>(logical) + 1];
  }
  for (int e = 0; e < num_experts; ++e) {
    if (last_rank[static_cast<size_t>(e)] < 0) {
      return Error(ErrorCode::kInvalidArgument, "expert {} is on no rank", e);
    }
  }
  std::partial_sum(placement.first_replica_.begin(), placement.first_replica_.end(),
                   placement.first_replica_.begin());
  placement.replicas_.resize(static_cast<size_t>(num_physical));
  std::vector<int32_t> next = placement.first_replica_;
  for (int64_t p = 0; p < num_physical; ++p) {
    const auto logical = static_cast<size_t>(logical_of_physical[static_cast<size_t>(p)]);
    placement.replicas_[static_cast<size_t>(next[logical]++)] = static_cast<int32_t>(p);
  }
  placement.logical_of_physical_ = std::move(logical_of_physical);
  return placement;
}

Result<ExpertPlacement> ExpertPlacement::Trivial(int num_experts, int num_redundant,
                                                 int num_ranks) {
  const int64_t num_physical = int64_t{num_experts} + num_redundant;
  RETURN_IF_ERROR(CheckCounts(num_experts, num_physical, num_ranks));
  std::vector<int32_t> logical(static_cast<size_t>(num_physical));
  for (size_t p = 0; p < logical.size(); ++p) {
    logical[p] = static_cast<int32_t>(p % static_cast<size_t>(num_experts));
  }
  return Create(num_experts, num_ranks, std::move(logical));
}

Result<ExpertPlacement> ExpertPlacement::Balanced(std::span<const int64_t> counts,
                                                  int num_redundant, int num_ranks) {
  const auto num_experts = static_cast<int>(counts.size());
  const int64_t num_physical = int64_t{num_experts} + num_redundant;
  RETURN_IF_ERROR(CheckCounts(num_experts, num_physical, num_ranks));
  for (const int64_t count : counts) {
    if (count < 0) return Error(ErrorCode::kInvalidArgument, "an expert got {} rows", count);
  }
  return Create(num_experts, num_ranks,
                Packing(counts, static_cast<int>(num_physical), num_ranks).Pack());
}

std::vector<double> ExpertPlacement::LoadPerRank(std::span<const int64_t> counts) const {
  std::vector<double> load(static_cast<size_t>(num_ranks_), 0.0);
  for (int32_t e = 0; e < num_experts(); ++e) {
    const std::span<const int32_t> all = replicas(e);
    const double share =
        static_cast<double>(counts[static_cast<size_t>(e)]) / static_cast<double>(all.size());
    for (const int32_t physical : all) load[static_cast<size_t>(rank_of(physical))] += share;
  }
  return load;
}

double ExpertPlacement::Balance(std::span<const int64_t> counts) const {
  const std::vector<double> load = LoadPerRank(counts);
  const double fullest = *std::ranges::max_element(load);
  if (fullest == 0) return 1;
  return std::accumulate(load.begin(), load.end(), 0.0) / num_ranks_ / fullest;
}

ExpertPlacement ExpertPlacement::Following(const ExpertPlacement& before) const {
  CHECK_EQ(before.num_ranks(), num_ranks());
  CHECK_EQ(before.num_physical(), num_physical());
  std::vector<int32_t> logical(logical_of_physical_.size());
  const std::vector<int> set_of = MatchRanks(*this, before);
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const std::span<const int32_t> old = before.of_rank(rank);
    const std::span<const int32_t> set = of_rank(set_of[static_cast<size_t>(rank)]);
    const auto place = std::span(logical).subspan(static_cast<size_t>(rank * per_rank()),
                                                  static_cast<size_t>(per_rank()));
    // Those that stay keep their places, the others fill the rest in order.
    std::ranges::transform(old, place.begin(), [&](int32_t expert) {
      return std::ranges::find(set, expert) != set.end() ? expert : -1;
    });
    size_t next = 0;
    for (const int32_t expert : set) {
      if (std::ranges::find(old, expert) != old.end()) continue;
      while (place[next] >= 0) ++next;
      place[next] = expert;
    }
  }
  return Create(num_experts(), num_ranks_, std::move(logical)).value();
}

Result<ExpertPlacement> ExpertPlan::Place(int layer, int num_experts) const {
  const auto index = static_cast<size_t>(layer);
  const auto named = [&](Result<ExpertPlacement> placement) -> Result<ExpertPlacement> {
    if (placement.ok()) return placement;
    return placement.status().Under("the experts of layer " + std::to_string(layer));
  };
  if (!physical_to_logical.empty()) {
    if (index >= physical_to_logical.size()) {
      return named(Error(ErrorCode::kInvalidArgument, "physical_to_logical_map has {} layers",
                         physical_to_logical.size()));
    }
    const std::vector<int32_t>& map = physical_to_logical[index];
    if (std::ssize(map) != num_experts + num_redundant) {
      return named(Error(ErrorCode::kInvalidArgument,
                         "physical_to_logical_map has {} entries; {} experts and {} redundant ones "
                         "are {}",
                         map.size(), num_experts, num_redundant, num_experts + num_redundant));
    }
    return named(ExpertPlacement::Create(num_experts, num_ranks, map));
  }
  if (!logical_count.empty()) {
    if (index >= logical_count.size() || std::ssize(logical_count[index]) != num_experts) {
      return named(
          Error(ErrorCode::kInvalidArgument,
                "logical_count has {} layers, and {} of {} experts here", logical_count.size(),
                index < logical_count.size() ? logical_count[index].size() : 0, num_experts));
    }
    return named(ExpertPlacement::Balanced(logical_count[index], num_redundant, num_ranks));
  }
  return named(ExpertPlacement::Trivial(num_experts, num_redundant, num_ranks));
}

}  // namespace hayate::comm
