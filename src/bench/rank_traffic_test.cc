// The simulation's counts against those of ranks that run a tiny model: the same rows, to the row.

#include "bench/rank_traffic.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/align.h"
#include "base/rng.h"
#include "models/testing/model_runner.h"

namespace hayate::bench {
namespace {

using models::testing::ModelRunner;
using models::testing::RunnerOptions;
using models::testing::RunnerRow;
using models::testing::WantedLogits;

// Which experts every token of a sequence chose, [layers][tokens, K]: computed token by token, so
// that the counts of one step are one token's choices.
class RecordedChoices {
 public:
  RecordedChoices(ModelRunner& runner, const models::ExpertShape& shape)
      : runner_(runner), shape_(shape) {}

  void Record(int sequence, const std::vector<int32_t>& tokens) {
    auto& layers = choices_[sequence];
    layers.resize(static_cast<size_t>(shape_.num_layers));
    for (const int32_t token : tokens) {
      const std::vector<int64_t> before = runner_.expert_counts(0);
      runner_.Step({{kSequence, {token}, WantedLogits::kLast}});
      const std::vector<int64_t>& after = runner_.expert_counts(0);
      for (size_t i = 0; i < after.size(); ++i) {
        if (after[i] == before[i]) continue;
        layers[i / static_cast<size_t>(shape_.num_experts)].push_back(
            static_cast<int32_t>(i % static_cast<size_t>(shape_.num_experts)));
      }
    }
    runner_.Drop(kSequence);
  }

  // Appends the choice of a sequence's token; nothing in a layer without experts.
  void Append(int sequence, int layer, int position, std::vector<int32_t>& to) const {
    const auto& all = choices_.at(sequence)[static_cast<size_t>(layer)];
    if (all.empty()) return;
    const auto begin = all.begin() + ptrdiff_t{position} * shape_.top_k;
    to.insert(to.end(), begin, begin + shape_.top_k);
  }

 private:
  static constexpr int kSequence = 0;
  ModelRunner& runner_;
  const models::ExpertShape shape_;
  std::map<int, std::vector<std::vector<int32_t>>> choices_;
};

class ServedTraffic : public ::testing::TestWithParam<std::string> {
 protected:
  ServedTraffic()
      : checkpoint_(
            weights::Checkpoint::Open(std::filesystem::path("tests/golden") / GetParam()).value()),
        shape_(models::ReadExpertShape(checkpoint_).value()) {}

  std::unique_ptr<ModelRunner> Runner(int num_ranks, int copies_per_rank) const {
    const int32_t redundant =
        AlignUp(shape_.num_experts, num_ranks) - shape_.num_experts + copies_per_rank * num_ranks;
    auto runner = ModelRunner::Create(checkpoint_, {.num_ranks = num_ranks,
                                                    .dp_size = num_ranks,
                                                    .num_redundant_experts = redundant,
                                                    .num_pages = 96,
                                                    .max_tokens = 128});
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return std::move(runner).value();
  }

  // Some tokens of a sequence, from `begin` on.
  struct Piece {
    int begin;
    RunnerRow row;
  };
  // Chunks and single tokens of some sequences; in some steps whole ranks have nothing.
  static std::vector<std::vector<Piece>> Steps(const std::vector<std::vector<int32_t>>& prompts,
                                               Rng& rng) {
    std::vector<size_t> done(prompts.size(), 0);
    std::vector<std::vector<Piece>> steps(40);
    for (std::vector<Piece>& step : steps) {
      for (size_t s = 0; s < prompts.size(); ++s) {
        if (done[s] == prompts[s].size() || rng.Below(2) == 0) continue;
        const auto begin = prompts[s].begin() + static_cast<ptrdiff_t>(done[s]);
        const size_t count = std::min(prompts[s].size() - done[s], size_t{1} + rng.Below(6));
        step.push_back({static_cast<int>(done[s]),
                        {static_cast<int>(s),
                         {begin, begin + static_cast<ptrdiff_t>(count)},
                         static_cast<WantedLogits>(rng.Below(3))}});
        done[s] += count;
      }
    }
    std::erase_if(steps, [](const std::vector<Piece>& step) { return step.empty(); });
    return steps;
  }

  // What each rank's rows choose in a layer. The last layer runs for the rows with logits alone.
  std::vector<std::vector<int32_t>> Chosen(const RecordedChoices& choices,
                                           const std::vector<Piece>& step, int layer,
                                           int num_ranks) const {
    std::vector<std::vector<int32_t>> chosen(static_cast<size_t>(num_ranks));
    for (const Piece& piece : step) {
      const bool last = layer + 1 == shape_.num_layers;
      const WantedLogits wanted = last ? piece.row.logits : WantedLogits::kAll;
      if (wanted == WantedLogits::kNone) continue;
      const int end = piece.begin + static_cast<int>(piece.row.tokens.size());
      for (int at = wanted == WantedLogits::kLast ? end - 1 : piece.begin; at < end; ++at) {
        choices.Append(piece.row.sequence, layer, at,
                       chosen[static_cast<size_t>(piece.row.sequence % num_ranks)]);
      }
    }
    return chosen;
  }

  static void ExpectCounted(const ModelRunner& runner, const std::vector<LayerTraffic>& total,
                            int num_ranks) {
    const int64_t row_bytes = runner.model().facts().hidden_size * int64_t{sizeof(float)};
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      int64_t arrived = 0, dispatched = 0, combined = 0;
      for (const LayerTraffic& traffic : total) {
        arrived += traffic.rows[r];
        dispatched += traffic.dispatched[r];
        combined += traffic.combined[r];
      }
      const comm::ExchangeCounters& counters = runner.exchange(rank).counters();
      EXPECT_EQ(arrived, counters.arrived_rows) << num_ranks << " ranks, rank " << rank;
      EXPECT_EQ(dispatched, counters.dispatched_rows);
      EXPECT_EQ(combined, counters.combined_rows);
      EXPECT_EQ((dispatched + combined) * row_bytes, counters.bytes);
      EXPECT_GT(counters.bytes, 0);
    }
  }

  weights::Checkpoint checkpoint_;
  const models::ExpertShape shape_;
};

TEST_P(ServedTraffic, IsCountedToTheRow) {
  Rng rng(21);
  std::vector<std::vector<int32_t>> prompts(7);
  const auto recorder = Runner(2, 0);
  RecordedChoices choices(*recorder, shape_);
  for (size_t s = 0; s < prompts.size(); ++s) {
    for (int count = rng.Between(4, 24); count > 0; --count) {
      prompts[s].push_back(static_cast<int32_t>(rng.Below(250)));
    }
    choices.Record(static_cast<int>(s), prompts[s]);
  }
  for (const auto& [num_ranks, copies] : {std::pair{2, 0}, {2, 1}, {4, 0}, {4, 1}}) {
    const auto runner = Runner(num_ranks, copies);
    std::vector<LayerTraffic> total;
    for (const std::vector<Piece>& step : Steps(prompts, rng)) {
      std::vector<RunnerRow> rows;
      for (const Piece& piece : step) rows.push_back(piece.row);
      runner->Step(rows);
      for (int layer = 0; layer < shape_.num_layers; ++layer) {
        total.push_back(CountTraffic(Chosen(choices, step, layer, num_ranks), shape_.top_k,
                                     runner->placements()[static_cast<size_t>(layer)]));
      }
    }
    ExpectCounted(*runner, total, num_ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ServedTraffic,
                         ::testing::Values("qwen_moe/qwen3_moe", "deepseek_v3/deepseek_v3",
                                           "deepseek_v4/flash"),
                         [](const auto& test) {
                           const std::string& name = test.param;
                           return name.substr(0, name.find('/'));
                         });

}  // namespace
}  // namespace hayate::bench
