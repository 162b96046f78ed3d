#include "bench/rank_simulation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace hayate::bench {
namespace {

// The choices of one layer and step: of each rank, [rows, K].
using Choices = std::vector<std::vector<int32_t>>;

class Simulator {
 public:
  Simulator(const RankSimulationOptions& options, const ExpertRouting& routing)
      : options_(options), model_(options.model), routing_(routing), rng_(options.seed) {}

  Result<RankSimulation> Run() {
    RETURN_IF_ERROR(Check());
    RETURN_IF_ERROR(Place());
    for (int step = 0; step < options_.simulated_steps; ++step) RunStep();
    return Report();
  }

 private:
  Status Check() const {
    const RankStep& step = options_.step;
    if (routing_.num_experts() != model_.num_experts) {
      return Error(ErrorCode::kInvalidArgument, "the routing is of {} experts, {} has {}",
                   routing_.num_experts(), model_.name, model_.num_experts);
    }
    if (step.num_ranks < 1 || step.sequences_per_rank < 1 || step.tokens_per_sequence < 1 ||
        options_.simulated_steps < 1 || options_.recorded_steps < 1) {
      return Error(ErrorCode::kInvalidArgument, "a step needs ranks, sequences and tokens");
    }
    return OkStatus();
  }

  int64_t RowsPerRank() const {
    return int64_t{options_.step.sequences_per_rank} * options_.step.tokens_per_sequence;
  }
  // The layer of the routing that stands for a layer of the model.
  int RoutingLayer(int layer) const { return layer % routing_.num_layers(); }

  Choices Choose(int layer, int64_t rows) {
    const auto k = static_cast<size_t>(model_.top_k);
    Choices choices(static_cast<size_t>(options_.step.num_ranks));
    for (std::vector<int32_t>& rank : choices) {
      rank.resize(static_cast<size_t>(rows) * k);
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        routing_.Choose(RoutingLayer(layer), rng_, std::span(rank).subspan(row * k, k));
      }
    }
    return choices;
  }

  Status Place() {
    const int ranks = options_.step.num_ranks, experts = model_.num_experts;
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      if (!options_.balanced) {
        ASSIGN_OR_RETURN(auto placement,
                         comm::ExpertPlacement::Trivial(experts, options_.num_redundant, ranks));
        placements_.push_back(std::move(placement));
        continue;
      }
      std::vector<int64_t> counts(static_cast<size_t>(experts), 0);
      for (int step = 0; step < options_.recorded_steps; ++step) {
        for (const auto& rank : Choose(layer, RowsPerRank())) {
          for (const int32_t expert : rank) ++counts[static_cast<size_t>(expert)];
        }
      }
      ASSIGN_OR_RETURN(auto placement,
                       comm::ExpertPlacement::Balanced(counts, options_.num_redundant, ranks));
      placements_.push_back(std::move(placement));
    }
    return OkStatus();
  }

  LayerTraffic Traffic(int layer, const Choices& choices) const {
    return CountTraffic(choices, model_.top_k, placements_[static_cast<size_t>(layer)]);
  }

  void RunStep() {
    std::vector<LayerTimes> whole;
    std::array<std::vector<LayerTimes>, 2> halves;
    const int64_t rows = RowsPerRank();
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      const Choices choices = Choose(layer, rows);
      const LayerTraffic traffic = Traffic(layer, choices);
      whole.push_back(Time(traffic, rows));
      Observe(traffic, whole.back());
      const auto cut = static_cast<ptrdiff_t>(rows / 2 * model_.top_k);
      for (size_t half = 0; half < 2; ++half) {
        Choices part(choices.size());
        for (size_t r = 0; r < part.size(); ++r) {
          const auto& all = choices[r];
          part[r] = half == 0 ? std::vector<int32_t>(all.begin(), all.begin() + cut)
                              : std::vector<int32_t>(all.begin() + cut, all.end());
        }
        halves[half].push_back(Time(Traffic(layer, part), half == 0 ? rows / 2 : rows - rows / 2));
      }
    }
    const double head_us = options_.rates.MemoryUs(model_.fixed_bytes);
    const double serial =
        std::accumulate(whole.begin(), whole.end(), head_us,
                        [](double sum, const LayerTimes& times) { return sum + times.total(); });
    step_us_ += serial;
    two_batch_us_ += head_us + OverlapTwoBatches(halves[0], halves[1]);
  }

  // Of a layer in which every rank has `rows` rows.
  LayerTimes Time(const LayerTraffic& traffic, int64_t rows) const {
    const RankRates& rates = options_.rates;
    const double share = static_cast<double>(rows) / static_cast<double>(RowsPerRank());
    // The tokens of one sequence read its cache together.
    const double cache_bytes =
        share * options_.step.sequences_per_rank *
        (model_.cache_bytes +
         model_.cache_bytes_per_token * static_cast<double>(options_.step.context)) /
        model_.num_layers;
    LayerTimes times = TimeExperts(model_, rates, traffic);
    times.attention_us =
        std::max(rates.MemoryUs(model_.dense_params + cache_bytes),
                 rates.ComputeUs(model_.flops_per_dense_row() * static_cast<double>(rows)));
    return times;
  }

  void Observe(const LayerTraffic& traffic, const LayerTimes& times) {
    const double ranks = options_.step.num_ranks;
    const auto sum = [](const std::vector<int64_t>& counts) {
      return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    };
    const auto most = [](const std::vector<int64_t>& counts) {
      return static_cast<double>(std::ranges::max(counts));
    };
    sums_.imbalance += most(traffic.rows) * ranks / sum(traffic.rows);
    sums_.experts_touched += most(traffic.experts_touched);
    sums_.dispatch_mb += sum(traffic.dispatched) / ranks * model_.dispatch_row_bytes() * 1e-6;
    sums_.combine_mb += sum(traffic.combined) / ranks * model_.combine_row_bytes() * 1e-6;
    sums_.attention_us += times.attention_us;
    sums_.experts_us += times.experts_us;
    sums_.exchange_us += times.dispatch_us + times.combine_us;
  }

  RankSimulation Report() const {
    const double steps = options_.simulated_steps, layers = steps * model_.num_layers;
    RankSimulation out = sums_;
    for (double* mean : {&out.imbalance, &out.experts_touched, &out.attention_us, &out.experts_us,
                         &out.exchange_us}) {
      *mean /= layers;
    }
    out.dispatch_mb /= steps;
    out.combine_mb /= steps;
    out.step_ms = step_us_ / steps * 1e-3;
    out.step_ms_two_batches = two_batch_us_ / steps * 1e-3;
    const double tokens =
        options_.step.sequences_per_rank * options_.step.accepted_per_sequence * 1e3;
    out.tokens_per_s = tokens / out.step_ms;
    out.tokens_per_s_two_batches = tokens / out.step_ms_two_batches;
    return out;
  }

  const RankSimulationOptions& options_;
  const RankModel& model_;
  const ExpertRouting& routing_;
  Rng rng_;
  std::vector<comm::ExpertPlacement> placements_;  // per layer
  RankSimulation sums_;
  double step_us_ = 0, two_batch_us_ = 0;
};

}  // namespace

LayerTimes TimeExperts(const RankModel& model, const RankRates& rates,
                       const LayerTraffic& traffic) {
  LayerTimes times;
  for (size_t r = 0; r < traffic.rows.size(); ++r) {
    const auto touched = static_cast<double>(traffic.experts_touched[r]);
    const auto computed = static_cast<double>(traffic.rows[r]);
    double experts_us = std::max(rates.MemoryUs(touched * model.expert_bytes),
                                 rates.ComputeUs(model.flops_per_expert_row() * computed));
    if (!rates.expert_costs.empty()) {
      experts_us = 0;
      for (const int32_t rows : traffic.expert_rows[r]) experts_us += rates.ExpertUs(rows);
    }
    times.experts_us = std::max(times.experts_us, experts_us);
    const auto link = [&](int64_t out, int64_t in, double bytes) {
      return rates.exchange_us + rates.LinkUs(static_cast<double>(std::max(out, in)) * bytes);
    };
    times.dispatch_us = std::max(
        times.dispatch_us,
        link(traffic.dispatched[r], traffic.dispatch_received[r], model.dispatch_row_bytes()));
    times.combine_us = std::max(times.combine_us, link(traffic.combined[r], traffic.combine_sent[r],
                                                       model.combine_row_bytes()));
  }
  return times;
}

Result<RankSimulation> SimulateRanks(const RankSimulationOptions& options,
                                     const ExpertRouting& routing) {
  return Simulator(options, routing).Run();
}

double OverlapTwoBatches(const std::vector<LayerTimes>& first,
                         const std::vector<LayerTimes>& second) {
  // Piece i of a batch: of layer i / 4, on the compute units where i is even, else on the link.
  const auto duration = [](const std::vector<LayerTimes>& batch, size_t i) {
    const LayerTimes& t = batch[i / 4];
    return std::array{t.attention_us, t.dispatch_us, t.experts_us, t.combine_us}[i % 4];
  };
  const std::array<const std::vector<LayerTimes>*, 2> batches = {&first, &second};
  std::array<size_t, 2> next = {0, 0};
  std::array<double, 2> batch_free = {0, 0}, unit_free = {0, 0};
  for (;;) {
    // The piece that can begin first goes first; of equals the batch that is behind.
    std::optional<size_t> best;
    double best_begin = 0;
    for (size_t b = 0; b < 2; ++b) {
      if (next[b] == 4 * batches[b]->size()) continue;
      const double begin = std::max(batch_free[b], unit_free[next[b] % 2]);
      if (best && (begin > best_begin || (begin == best_begin && next[b] >= next[*best]))) continue;
      best = b;
      best_begin = begin;
    }
    if (!best) return std::max(batch_free[0], batch_free[1]);
    const double end = best_begin + duration(*batches[*best], next[*best]);
    batch_free[*best] = unit_free[next[*best] % 2] = end;
    ++next[*best];
  }
}

}  // namespace hayate::bench
