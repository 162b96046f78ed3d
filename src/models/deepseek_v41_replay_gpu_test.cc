// Windows of DeepSeek V4.1 that are computed again, on a GPU: the published formulas in float64, as
// deepseek_v41_replay_test.cc has them.

#include <gtest/gtest.h>

#include <algorithm>

#include "models/testing/golden_case.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::GoldenValues;
using testing::ModelRunner;
using testing::WantedLogits;
using testing::WorstDifference;

const std::filesystem::path kGolden = "tests/golden/deepseek_v41/tiny";

TEST(DeepseekV41ReplayGpu, GivesTheLogitsOfThePublishedFormulasInAnyChunks) {
  const auto checkpoint = weights::Checkpoint::Open(kGolden).value();
  const auto prompt = testing::ReadGoldenCase(kGolden).input_ids;
  const auto file = weights::Checkpoint::Open(kGolden / "replay.safetensors").value();
  const auto first = GoldenValues<int32_t>(file, "first"),
             settled = GoldenValues<int32_t>(file, "settled");
  const auto expected = GoldenValues<float>(file, "logits");
  const auto length = static_cast<int32_t>(prompt.size());
  const auto part = [&](int32_t begin, int32_t end) {
    return std::vector<int32_t>(prompt.begin() + begin, prompt.begin() + end);
  };
  auto runner = ModelRunner::Create(checkpoint, {.device = DeviceKind::kCuda,
                                                 .window_reuse = WindowReuse::kReplayed,
                                                 .page_tokens = 4,
                                                 .num_pages = 160,
                                                 .max_tokens = 320})
                    .value();
  const auto vocab = static_cast<int64_t>(runner->vocab_size());
  for (const int32_t chunk : {1000, 17, 5}) {
    auto next = expected.begin();
    for (size_t i = 0; i < first.size(); ++i) {
      runner->Step({{0, part(0, settled[i]), WantedLogits::kNone}});
      runner->Replay(0, first[i], settled[i]);
      std::vector<float> logits;
      for (int32_t begin = first[i]; begin < length; begin += chunk) {
        const int32_t end = std::min(length, begin + chunk);
        const auto& all = runner->Step({{0, part(begin, end), WantedLogits::kAll}});
        const int32_t skipped = std::clamp(settled[i] - begin, 0, end - begin);
        logits.insert(logits.end(), all.begin() + skipped * vocab, all.end());
      }
      runner->Drop(0);
      const auto end = next + static_cast<ptrdiff_t>(logits.size());
      // As the golden logits of whole runs (models_golden_gpu_test.cc).
      EXPECT_LT(WorstDifference(logits, {next, end}), 1e-4f) << settled[i] << " by " << chunk;
      next = end;
    }
    EXPECT_EQ(next, expected.end());
  }
}

}  // namespace
}  // namespace hayate::models
