// How many drafts a step verifies, over the whole engine on a simulated device: from batch 1 to 256
// the choice is never slower than any fixed length by more than 2 %. Nothing is handed to it: the
// chances are learned from what stood, request by request, or are a drafter's confidences, and the
// times of steps are those that a server measures at its start.

#include <gtest/gtest.h>

#include <cmath>

#include "engine/testing/world.h"

namespace hayate::engine {
namespace {

using testing::MakeRequest;
using testing::RandomPrompt;
using testing::World;
using testing::WorldOptions;

constexpr int32_t kMaxDrafts = 5;
constexpr int32_t kPrompt = 4;
constexpr int32_t kAnswer = 96;

// ns of a step of so many tokens.
using Curve = double (*)(int32_t tokens);
// A device that reads its weights in any case and computes 128 tokens in that time.
double Gpu(int32_t tokens) { return std::hypot(5e6, 4e4 * tokens); }
// Kernels in tiles of 8 rows.
double Tiled(int32_t tokens) { return 2e6 + 1e6 * ((tokens + 7) / 8); }
// Few cores: the third token costs as much as the first.
double Cpu(int32_t tokens) { return 2e6 + 1.2e6 * tokens; }

using Points = std::vector<spec::StepCost::Point>;

Points Exactly(Curve curve) {
  Points points;
  for (int32_t tokens = 1; tokens <= 2048; ++tokens) points.push_back({tokens, curve(tokens)});
  return points;
}

// What a server learns of the device at its start.
Points Measured(Curve curve, int32_t batch) {
  VirtualClock clock;
  CacheLayout layout{.page_tokens = 16};
  layout.groups.push_back({.name = "full", .kind = CacheKind::kFull, .page_bytes = 1});
  const int32_t pages = batch + 1;
  SimulatedExecutor executor({.layout = layout,
                              .num_pages = {pages},
                              .max_slots = batch,
                              .max_context = 2 * layout.page_tokens,
                              .vocab_size = testing::kVocab,
                              .step_times = Exactly(curve)},
                             clock);
  return spec::MeasureStepCost(executor, clock,
                               {.vocab_size = testing::kVocab,
                                .max_drafts = kMaxDrafts,
                                .max_rows = batch,
                                .max_step_tokens = batch * (kMaxDrafts + 1),
                                .budget_ns = 2'000'000'000,
                                .layout = &layout,
                                .pool_pages = {pages}})
      .value()
      .points();
}

struct Drafter {
  float quality;     // chance of every draft
  bool confidences;  // a chance of its own for every draft, which is known
};

enum class Lengths : uint8_t { kChosen, kFixed };

// Tokens a second while `batch` requests run at any time.
double Speed(Curve curve, const Drafter& drafter, int32_t batch, Lengths lengths,
             int32_t max_drafts) {
  WorldOptions options;
  options.page_tokens = 16;
  options.max_context = kPrompt + kAnswer + 2 * kMaxDrafts;
  options.total_tokens = batch * (options.max_context + 32);
  options.scheduler.max_running = batch;
  options.scheduler.chunked_prefill_size = kPrompt * batch;
  options.scheduler.max_drafts = max_drafts;
  options.scheduler.max_step_drafts = max_drafts * batch;
  options.scheduler.draft_lookahead = max_drafts;
  options.draft_source = DraftSource::kModel;
  options.draft_quality = drafter.quality;
  options.draft_confidences = drafter.confidences;
  options.step_times = Exactly(curve);
  options.step_cost = lengths == Lengths::kChosen ? Measured(curve, batch) : Points();
  World world(options);
  Rng rng(static_cast<uint64_t>(batch));
  const int32_t num_tokens = std::max(20000, 100 * batch);
  std::vector<RequestId> ids;
  for (int32_t left = num_tokens; left > -kAnswer * batch;) {
    Request request = MakeRequest(RandomPrompt(rng, kPrompt), rng.Between(kAnswer / 3, kAnswer));
    request.sampling.ignore_eos = true;
    left -= request.sampling.max_new_tokens;
    ids.push_back(world.Submit(request));
  }
  const auto generated = [&] { return world.metrics_.generation_tokens.value(); };
  while (generated() < static_cast<uint64_t>(num_tokens)) world.engine_->Turn();
  const double speed =
      1e9 * static_cast<double>(generated()) / static_cast<double>(world.clock_.NowNs());
  for (const RequestId id : ids) world.client_->Cancel(id);
  world.Settle();
  return speed;
}

class DraftSweep : public ::testing::TestWithParam<std::pair<const char*, Curve>> {};

TEST_P(DraftSweep, TheChoiceIsNeverSlowerThanAFixedLengthFromBatch1To256) {
  const Curve curve = GetParam().second;
  for (const Drafter& drafter :
       {Drafter{0.3f, false}, Drafter{0.6f, false}, Drafter{0.9f, false}, Drafter{0.0f, true}}) {
    for (int32_t batch = 1; batch <= 256; batch *= 4) {
      const double chosen = Speed(curve, drafter, batch, Lengths::kChosen, kMaxDrafts);
      for (int32_t fixed = 0; fixed <= kMaxDrafts; ++fixed) {
        const double other = Speed(curve, drafter, batch, Lengths::kFixed, fixed);
        EXPECT_GT(chosen / other, 0.98) << "batch " << batch << ", " << fixed << " drafts, quality "
                                        << drafter.quality << (drafter.confidences ? " known" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DraftSweep,
                         ::testing::Values(std::pair("Gpu", &Gpu), std::pair("Tiled", &Tiled),
                                           std::pair("Cpu", &Cpu)),
                         [](const auto& test) { return test.param.first; });

}  // namespace
}  // namespace hayate::engine
