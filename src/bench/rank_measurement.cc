#include "bench/rank_measurement.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/thread.h"
#include "bench/rank_simulation.h"
#include "comm/token_exchange.h"
#include "ops/moe/moe.h"
#include "tensor/float16.h"

namespace hayate::bench {
namespace {

// Experts of 2 MB of bf16: those of one rank do not fit its caches.
constexpr int kExperts = 32, kTopK = 4;
constexpr int32_t kHidden = 768, kExpertSize = 448;

using Choices = std::vector<std::vector<int32_t>>;  // of each rank, [rows, K] logical experts

enum class Work { kWhole, kExchangeAlone };

RankModel Model() {
  return {.name = "measured",
          .num_layers = 1,
          .hidden_size = kHidden,
          .num_experts = kExperts,
          .top_k = kTopK,
          .expert_size = kExpertSize,
          .expert_bytes = 3.0 * kHidden * kExpertSize * 2,
          .dispatch_value_bytes = 4,
          .combine_value_bytes = 4};
}

ops::MoeConfig Config() {
  return {.router = {.num_experts = kExperts, .top_k = 1},
          .hidden_size = kHidden,
          .expert_size = kExpertSize};
}

Result<ops::PackedMatrix> RandomMatrix(Device& device, int64_t n, int64_t k, Rng& rng) {
  std::vector<uint16_t> values(static_cast<size_t>(n * k));
  for (uint16_t& value : values) value = FloatToBf16(rng.NextFloat() - 0.5f);
  const ops::MatrixPiece piece = ops::MatrixPiece::Whole(
      {reinterpret_cast<const std::byte*>(values.data()), DType::kBF16, {n, k}});
  return ops::PackMatrix(device, {&piece, 1}, ops::MatmulPrecision::kFast);
}

// The layer's experts on the ranks of a placement.
class MeasuredLayer {
 public:
  static Result<std::unique_ptr<MeasuredLayer>> Create(comm::ExpertPlacement placement,
                                                       int32_t max_rows) {
    ASSIGN_OR_RETURN(auto groups, comm::MakeLocalGroup(placement.num_ranks()));
    auto layer = std::unique_ptr<MeasuredLayer>(
        new MeasuredLayer(std::move(placement), std::move(groups), max_rows));
    RETURN_IF_ERROR(layer->Load());
    return layer;
  }

  const comm::ExpertPlacement& placement() const { return placement_; }
  // That ranks run on, in turns where there are fewer than ranks.
  size_t num_cores() const {
    return std::min(ranks_.size(), size_t{std::max(1u, std::thread::hardware_concurrency())});
  }
  LayerTraffic Traffic(const Choices& choices) const {
    return CountTraffic(choices, kTopK, placement_);
  }

  // Median µs of rank 0 from one meeting of the ranks to the next.
  double TimeUs(const Choices& choices, int repeats, Work work) {
    std::vector<double> times;
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        PinThisThread(static_cast<int>(rank % num_cores()));
        const SteadyClock clock;
        Prepare(ranks_[rank], static_cast<int>(rank), choices[rank]);
        for (int i = -2; i < repeats; ++i) {
          groups_[rank]->Barrier({});
          const int64_t begin_ns = clock.NowNs();
          RunOnce(static_cast<int>(rank), choices, work);
          const double us = static_cast<double>(clock.NowNs() - begin_ns) * 1e-3;
          if (rank == 0 && i >= 0) times.push_back(us);
        }
      });
    }
    threads.clear();
    std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
    return times[times.size() / 2];
  }

 private:
  struct Rank {
    std::unique_ptr<Device> device;
    ops::ExpertWeights experts;
    std::unique_ptr<Workspace> workspace;
    std::vector<float> x, back, weights;  // [n, H], [n · K, H], [n, K]
    std::vector<int32_t> physical;        // [n, K]
  };

  MeasuredLayer(comm::ExpertPlacement placement, std::vector<std::unique_ptr<comm::Group>> groups,
                int32_t max_rows)
      : placement_(std::move(placement)),
        groups_(std::move(groups)),
        exchanges_(comm::TokenExchange::MakeLocal(groups_)),
        ranks_(groups_.size()),
        max_rows_(max_rows) {}

  Status Load() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      rank.device = MakeCpuDevice(static_cast<int>(r));
      Rng rng(r + 1);
      for (int place = 0; place < placement_.per_rank(); ++place) {
        ASSIGN_OR_RETURN(rank.experts.gate_up.emplace_back(),
                         RandomMatrix(*rank.device, 2 * kExpertSize, kHidden, rng));
        ASSIGN_OR_RETURN(rank.experts.down.emplace_back(),
                         RandomMatrix(*rank.device, kHidden, kExpertSize, rng));
      }
      const int64_t arrivals = comm::TokenExchange::MaxArrivals(
          int64_t{max_rows_} * placement_.num_ranks(), kTopK, placement_.per_rank());
      const int64_t bytes = comm::TokenExchange::WorkspaceBytes(arrivals, kHidden) +
                            arrivals * kHidden * 4 +
                            ops::MoeWorkspaceBytes(Config(), placement_.per_rank(), arrivals);
      ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(*rank.device, static_cast<size_t>(bytes)));
      rank.workspace = std::make_unique<Workspace>(std::move(buffer));
    }
    return OkStatus();
  }

  void Prepare(Rank& mine, int rank, const std::vector<int32_t>& chosen) {
    const size_t pairs = chosen.size(), rows = pairs / kTopK;
    mine.x.assign(rows * kHidden, 0.5f);
    mine.back.assign(pairs * kHidden, 0.0f);
    mine.weights.assign(pairs, 0.25f);
    mine.physical.resize(pairs);
    for (size_t pair = 0; pair < pairs; ++pair) {
      mine.physical[pair] =
          placement_.ReplicaFor(chosen[pair], static_cast<int64_t>(pair) / kTopK + rank);
    }
  }

  // The exchange alone gives back what arrived.
  void RunOnce(int rank, const Choices& choices, Work work) {
    Rank& mine = ranks_[static_cast<size_t>(rank)];
    comm::TokenExchange& exchange = *exchanges_[static_cast<size_t>(rank)];
    std::vector<int32_t> rows;
    for (const auto& chosen : choices) rows.push_back(static_cast<int32_t>(chosen.size() / kTopK));
    const auto view = [](std::vector<float>& values) {
      return TensorView{reinterpret_cast<std::byte*>(values.data()), DType::kF32,
                        Shape{std::ssize(values) / kHidden, kHidden}};
    };
    Workspace& workspace = *mine.workspace;
    const comm::DispatchedRows arrived = exchange.Dispatch({}, workspace,
                                                           {.x = view(mine.x),
                                                            .choices = kTopK,
                                                            .experts = mine.physical.data(),
                                                            .weights = mine.weights.data(),
                                                            .rows = rows,
                                                            .placement = &placement_});
    TensorView results = arrived.x;
    if (work == Work::kWhole) {
      const ops::MoeConfig config = Config();
      results = workspace.Take(DType::kF32, arrived.x.shape);
      ops::RunExperts({}, workspace,
                      {.out = results,
                       .x = arrived.x,
                       .chosen = arrived.places,
                       .weights = arrived.weights,
                       .config = &config,
                       .experts = &mine.experts});
    }
    exchange.Combine({}, results, view(mine.back));
    workspace.ResetTo(0);
  }

  const comm::ExpertPlacement placement_;
  const std::vector<std::unique_ptr<comm::Group>> groups_;
  const std::vector<std::unique_ptr<comm::TokenExchange>> exchanges_;
  std::vector<Rank> ranks_;
  const int32_t max_rows_;
};

// Every expert of the layer gets `rows_per_expert` rows, from all ranks alike.
Choices EvenChoices(int num_ranks, int32_t rows_per_expert) {
  Choices choices(static_cast<size_t>(num_ranks));
  int32_t next = 0;
  for (int32_t i = 0; i < rows_per_expert * kExperts / kTopK; ++i) {
    std::vector<int32_t>& rank = choices[static_cast<size_t>(i % num_ranks)];
    for (int j = 0; j < kTopK; ++j) rank.push_back(next++ % kExperts);
  }
  return choices;
}

Choices SkewedChoices(const ExpertRouting& routing, int num_ranks, int32_t rows, Rng& rng) {
  Choices choices(static_cast<size_t>(num_ranks));
  for (std::vector<int32_t>& rank : choices) {
    rank.resize(static_cast<size_t>(rows) * kTopK);
    for (int32_t row = 0; row < rows; ++row) {
      routing.Choose(0, rng, std::span(rank).subspan(static_cast<size_t>(row) * kTopK, kTopK));
    }
  }
  return choices;
}

// What the ranks of one core do, one after the other: as if the core were a rank.
LayerTraffic OnCores(const LayerTraffic& ranks, size_t num_cores) {
  if (num_cores >= ranks.rows.size()) return ranks;
  LayerTraffic cores;
  using Counts = std::vector<int64_t> LayerTraffic::*;
  for (const Counts counts :
       {&LayerTraffic::rows, &LayerTraffic::experts_touched, &LayerTraffic::dispatched,
        &LayerTraffic::dispatch_received, &LayerTraffic::combined, &LayerTraffic::combine_sent}) {
    (cores.*counts).assign(num_cores, 0);
    for (size_t r = 0; r < ranks.rows.size(); ++r) {
      (cores.*counts)[r % num_cores] += (ranks.*counts)[r];
    }
  }
  cores.expert_rows.resize(num_cores);
  for (size_t r = 0; r < ranks.rows.size(); ++r) {
    std::vector<int32_t>& mine = cores.expert_rows[r % num_cores];
    mine.insert(mine.end(), ranks.expert_rows[r].begin(), ranks.expert_rows[r].end());
  }
  return cores;
}

// Rates at which the even loads take the times that were measured. What the experts take is the
// whole less the exchange.
RankRates Fit(MeasuredLayer& layer, int repeats, int32_t most_rows) {
  const int num_ranks = layer.placement().num_ranks();
  const RankModel model = Model();
  RankRates rates;
  const Choices none(static_cast<size_t>(num_ranks));
  rates.exchange_us = layer.TimeUs(none, repeats, Work::kExchangeAlone) / 2;
  for (int32_t rows = 1; rows <= most_rows; rows *= 2) {
    const Choices choices = EvenChoices(num_ranks, rows);
    const LayerTraffic traffic = OnCores(layer.Traffic(choices), layer.num_cores());
    const double exchange_us = layer.TimeUs(choices, repeats, Work::kExchangeAlone);
    const double whole_us = layer.TimeUs(choices, repeats, Work::kWhole);
    const auto experts = static_cast<double>(traffic.expert_rows[0].size());
    rates.expert_costs.push_back({rows, std::max(0.0, whole_us - exchange_us) / experts});
    const double bytes = static_cast<double>(traffic.dispatched[0]) * model.dispatch_row_bytes() +
                         static_cast<double>(traffic.combined[0]) * model.combine_row_bytes();
    // The last and largest load counts.
    rates.link_gb_s = bytes / std::max(1e-3, exchange_us - 2 * rates.exchange_us) * 1e-3;
  }
  return rates;
}

}  // namespace

Result<std::vector<RankMeasurement>> MeasureRanks(const RankMeasurementOptions& options) {
  const int ranks = options.num_ranks;
  if (options.rows.empty() || std::ranges::min(options.rows) < 1 || options.most_even_rows < 1) {
    return Status(ErrorCode::kInvalidArgument, "a measurement wants at least one row of a rank");
  }
  // One rank may come to send all rows of an even load.
  const int32_t most =
      std::max(std::ranges::max(options.rows), options.most_even_rows * kExperts / kTopK);
  Rng rng(options.seed);
  const ExpertRouting routing = ExpertRouting::Zipf(1, kExperts, options.zipf, options.seed);
  std::vector<int64_t> counts(kExperts, 0);
  for (const auto& rank : SkewedChoices(routing, ranks, 4096, rng)) {
    for (const int32_t expert : rank) ++counts[static_cast<size_t>(expert)];
  }
  ASSIGN_OR_RETURN(auto in_order, comm::ExpertPlacement::Trivial(kExperts, 0, ranks));
  ASSIGN_OR_RETURN(auto redundant, comm::ExpertPlacement::Balanced(counts, ranks, ranks));
  ASSIGN_OR_RETURN(const auto first, MeasuredLayer::Create(std::move(in_order), most));
  ASSIGN_OR_RETURN(const auto second, MeasuredLayer::Create(std::move(redundant), most));
  const RankRates rates = Fit(*first, options.repeats, options.most_even_rows);
  std::vector<RankMeasurement> measurements;
  for (const int32_t rows : options.rows) {
    const Choices choices = SkewedChoices(routing, ranks, rows, rng);
    for (MeasuredLayer* layer : {first.get(), second.get()}) {
      const LayerTraffic traffic = layer->Traffic(choices);
      const auto total = std::accumulate(traffic.rows.begin(), traffic.rows.end(), int64_t{0});
      measurements.push_back(
          {.rows = rows,
           .placement = layer == first.get() ? "in order" : "redundant",
           .imbalance = static_cast<double>(std::ranges::max(traffic.rows)) * ranks /
                        static_cast<double>(total),
           .foretold_us = TimeExperts(Model(), rates, OnCores(traffic, layer->num_cores())).total(),
           .measured_us = layer->TimeUs(choices, options.repeats, Work::kWhole)});
    }
  }
  return measurements;
}

}  // namespace hayate::bench
