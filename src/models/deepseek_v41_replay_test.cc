// DeepSeek V4.1 behind a cached prefix whose windows are computed again instead of kept: against
// the published formulas in float64 (tests/golden/deepseek_v41/replay.safetensors), and where
// enough is computed again, against the model without a cache.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::WantedLogits;

const std::filesystem::path kGolden = "tests/golden/deepseek_v41/tiny";
constexpr int32_t kPage = 4;
constexpr int32_t kWindow = 16;
constexpr int32_t kLayers = 10;

template <typename T>
std::vector<T> Values(const weights::Checkpoint& file, std::string_view name) {
  const ConstTensorView tensor = file.Tensor(name).value();
  const T* values = reinterpret_cast<const T*>(tensor.data);
  return std::vector<T>(values, values + tensor.shape.num_elements());
}

class DeepseekV41Replay : public ::testing::Test {
 protected:
  DeepseekV41Replay()
      : checkpoint_(weights::Checkpoint::Open(kGolden).value()),
        prompt_(Values<int32_t>(weights::Checkpoint::Open(kGolden / "expected.safetensors").value(),
                                "input_ids")) {}

  std::unique_ptr<ModelRunner> Runner(WindowReuse reuse, int num_ranks = 1) {
    return ModelRunner::Create(checkpoint_, {.num_ranks = num_ranks,
                                             .window_reuse = reuse,
                                             .page_tokens = kPage,
                                             .num_pages = 160,
                                             .max_tokens = 320})
        .value();
  }
  std::vector<int32_t> Prompt(int32_t begin, int32_t end) const {
    return {prompt_.begin() + begin, prompt_.begin() + end};
  }
  int32_t length() const { return static_cast<int32_t>(prompt_.size()); }

  // Logits of the positions behind the prefix, the replay and the rest cut into `chunk` tokens.
  std::vector<float> Continue(ModelRunner& runner, int32_t first, int32_t settled, int32_t chunk) {
    runner.Step({{0, Prompt(0, settled), WantedLogits::kNone}});
    runner.Replay(0, first, settled);
    std::vector<float> all;
    for (int32_t begin = first; begin < length(); begin += chunk) {
      const int32_t end = std::min(length(), begin + chunk);
      const auto& logits = runner.Step({{0, Prompt(begin, end), WantedLogits::kAll}});
      const int32_t skipped = std::clamp(settled - begin, 0, end - begin);
      all.insert(all.end(), logits.begin() + int64_t{skipped} * runner.vocab_size(), logits.end());
    }
    runner.Drop(0);
    return all;
  }
  std::vector<float> Whole(ModelRunner& runner, int32_t from) {
    std::vector<float> logits = runner.Step({{0, prompt_, WantedLogits::kAll}});
    runner.Drop(0);
    logits.erase(logits.begin(), logits.begin() + int64_t{from} * runner.vocab_size());
    return logits;
  }

  weights::Checkpoint checkpoint_;
  std::vector<int32_t> prompt_;
};

float WorstDifference(const float* a, const float* b, size_t count) {
  float worst = 0.0f;
  for (size_t i = 0; i < count; ++i) {
    const float difference = std::abs(a[i] - b[i]);
    worst = difference <= worst ? worst : difference;  // a NaN must not compare as close
  }
  return worst;
}

TEST_F(DeepseekV41Replay, GivesTheLogitsOfThePublishedFormulas) {
  const auto file = weights::Checkpoint::Open(kGolden / "replay.safetensors").value();
  const auto first = Values<int32_t>(file, "first"), settled = Values<int32_t>(file, "settled");
  const auto expected = Values<float>(file, "logits");
  for (const int num_ranks : {1, 3}) {
    const auto runner = Runner(WindowReuse::kReplayed, num_ranks);
    const float* next = expected.data();
    for (size_t i = 0; i < first.size(); ++i) {
      const std::vector<float> logits = Continue(*runner, first[i], settled[i], 1000);
      // As the golden logits of whole runs (deepseek_v4_test.cc).
      EXPECT_LT(WorstDifference(logits.data(), next, logits.size()), 1e-4f)
          << settled[i] << " on " << num_ranks;
      next += logits.size();
    }
    EXPECT_EQ(next, expected.data() + expected.size());
  }
}

TEST_F(DeepseekV41Replay, DoesNotDependOnHowItIsChunked) {
  const auto runner = Runner(WindowReuse::kReplayed);
  for (const int32_t settled : {20, 64, 148}) {
    const int32_t first = std::max(0, settled - kWindow);
    const std::vector<float> whole = Continue(*runner, first, settled, 1000);
    for (const int32_t chunk : {1, 5, 16, 17, 64}) {
      EXPECT_EQ(Continue(*runner, first, settled, chunk), whole) << settled << " by " << chunk;
    }
  }
}

TEST_F(DeepseekV41Replay, OfAllThatWindowsReachGivesEveryBit) {
  const auto runner = Runner(WindowReuse::kReplayedExactly);
  const int32_t reach = kLayers * (kWindow - 1);
  EXPECT_EQ(runner->model().cache_layout().replay_tokens, reach);
  // A longer prompt, whose replay does not begin at its start.
  for (int32_t i = 0; i < 100; ++i) prompt_.push_back(prompt_[static_cast<size_t>(i * 7 % 150)]);
  for (const int32_t settled : {16, 152, 180, 244}) {
    const int32_t first = std::max(0, settled - reach) / kPage * kPage;
    EXPECT_EQ(Continue(*runner, first, settled, 50), Whole(*runner, settled)) << settled;
  }
}

TEST_F(DeepseekV41Replay, OfOneWindowDiffersOnlyBehindLongerPrefixes) {
  const auto runner = Runner(WindowReuse::kReplayed);
  EXPECT_EQ(runner->model().cache_layout().replay_tokens, kWindow);
  EXPECT_EQ(Continue(*runner, 0, kWindow, 1000), Whole(*runner, kWindow));
  // Longer ones lose what windows held before the replay, and the more is replayed the less that
  // is. Logits are of order 3; random weights make more of a difference than trained ones.
  const std::vector<float> exact = Whole(*runner, 128);
  double before = 1.0;
  for (const int32_t windows : {1, 2, 4, 6}) {
    const auto replayed = Continue(*runner, 128 - windows * kWindow, 128, 1000);
    double sum = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) sum += std::abs(replayed[i] - exact[i]);
    const double mean = sum / static_cast<double>(exact.size());
    EXPECT_LT(mean, before) << windows << " windows";
    EXPECT_GT(mean, 0.0) << windows << " windows";
    before = mean;
  }
}

TEST_F(DeepseekV41Replay, IsOfThisFamilyAlone) {
  const auto device = MakeCpuDevice(0);
  const auto other = weights::Checkpoint::Open("tests/golden/deepseek_v4/ratio_32").value();
  const Status status =
      LoadModel(other, {.device = device.get(), .window_reuse = WindowReuse::kReplayed}).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << status.message();
}

}  // namespace
}  // namespace hayate::models
