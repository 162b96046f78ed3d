// The tiny checkpoints of tests/golden on a GPU: fp32 end to end against the same tolerance as the
// CPU, and the fast mode's bf16 activations within what rounding explains.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "models/testing/golden_case.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::WantedLogits;
using testing::WorstDifference;

const std::filesystem::path kGolden = "tests/golden";
constexpr const char* kFolders[] = {"dense",        "qwen_moe",    "gpt_oss",     "deepseek_v3",
                                    "deepseek_v32", "deepseek_v4", "deepseek_v41"};

// fp32 sums in another order; see models_golden_test.cc.
constexpr float kExactTolerance = 1e-4f;
// Logits are of order 1; activations, keys and values are rounded to 8 bits of mantissa, which
// moves them by 0.15 at most here.
constexpr float kFastTolerance = 0.25f;
// Where a router or an indexer chooses, rounding can change whole experts or keys of a token, so
// only the average difference of all logits tells. These are of order 3; choices of a few among few
// in models this small weigh much, and fp8 products round activations to 4 bits as well. About half
// of each is reached. V4.1's tiny checkpoint is so sensitive that one run says little: a test of
// its own is below.
struct FastAverage {
  const char* folder;
  float bf16, fp8;
};
constexpr FastAverage kFastAverages[] = {
    {"dense/", 0.1f, 0.1f},       {"qwen_moe/", 0.15f, 0.25f},   {"gpt_oss/", 0.15f, 0.15f},
    {"deepseek_v3/", 0.2f, 0.6f}, {"deepseek_v32/", 0.6f, 1.2f}, {"deepseek_v4/", 0.6f, 0.6f}};

float AllowedAverage(const std::string& name) {
  const auto found = std::ranges::find_if(
      kFastAverages, [&](const FastAverage& family) { return name.starts_with(family.folder); });
  return name.ends_with("_fp8") ? found->fp8 : found->bf16;
}

float AverageDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (WorstDifference(a, b) == std::numeric_limits<float>::infinity()) {
    return std::numeric_limits<float>::infinity();
  }
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return static_cast<float>(sum / static_cast<double>(a.size()));
}

class GpuGolden : public ::testing::TestWithParam<std::string> {
 protected:
  GpuGolden()
      : checkpoint_(weights::Checkpoint::Open(kGolden / GetParam()).value()),
        expected_(testing::ReadGoldenCase(kGolden / GetParam())) {}

  std::unique_ptr<ModelRunner> Runner(RunnerOptions options) {
    options.device = DeviceKind::kCuda;
    options.num_pages = 64;
    options.max_tokens = 320;
    auto runner = ModelRunner::Create(checkpoint_, options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return std::move(runner).value();
  }
  std::vector<float> Chunked(ModelRunner& runner, size_t chunk, int sequence) {
    std::vector<float> all;
    const auto& ids = expected_.input_ids;
    for (size_t begin = 0; begin < ids.size(); begin += chunk) {
      const size_t end = std::min(ids.size(), begin + chunk);
      const auto& logits = runner.Step(
          {{sequence,
            {ids.begin() + static_cast<long>(begin), ids.begin() + static_cast<long>(end)},
            WantedLogits::kAll}});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  weights::Checkpoint checkpoint_;
  const testing::GoldenCase expected_;
};

TEST_P(GpuGolden, ExactModeGivesTheLogitsOfTransformers) {
  const auto runner = Runner({.page_tokens = 64});
  std::vector<float> logits = Chunked(*runner, expected_.input_ids.size(), 0);
  EXPECT_LT(WorstDifference(logits, expected_.logits), kExactTolerance);
  const size_t vocab = static_cast<size_t>(runner->vocab_size());
  for (size_t i = 0; i + 1 < expected_.greedy.size(); ++i) {
    logits = runner->Step({{0, {expected_.greedy[i]}}});
    const std::vector<float> row(
        expected_.greedy_logits.begin() + static_cast<long>((i + 1) * vocab),
        expected_.greedy_logits.begin() + static_cast<long>((i + 2) * vocab));
    EXPECT_LT(WorstDifference(logits, row), kExactTolerance) << "greedy token " << i + 1;
  }
}

TEST_P(GpuGolden, ChunksDoNotChangeTheAnswer) {
  const auto runner = Runner({.page_tokens = 16});
  for (const size_t chunk : {1, 5, 17, 33}) {
    EXPECT_LT(WorstDifference(Chunked(*runner, chunk, 0), expected_.logits), kExactTolerance)
        << chunk;
    runner->Drop(0);
  }
}

class GpuGoldenFast : public GpuGolden {};

TEST_P(GpuGoldenFast, FastModeStaysClose) {
  const auto runner = Runner(
      {.precision = ops::MatmulPrecision::kFast, .kv_dtype = DType::kBF16, .page_tokens = 64});
  for (const size_t chunk : {1, 19, 64}) {
    const std::vector<float> logits = Chunked(*runner, chunk, 0);
    if (GetParam().starts_with("dense/")) {
      EXPECT_LT(WorstDifference(logits, expected_.logits), kFastTolerance) << chunk;
    }
    EXPECT_LT(AverageDifference(logits, expected_.logits), AllowedAverage(GetParam())) << chunk;
    runner->Drop(0);
  }
}

std::vector<std::string> AllCases() {
  std::vector<std::string> cases;
  for (const std::string folder : kFolders) {
    for (const std::string& name : testing::GoldenCases(kGolden / folder)) {
      cases.push_back(folder + "/" + name);
    }
  }
  return cases;
}
std::vector<std::string> FastCases() {
  std::vector<std::string> cases = AllCases();
  std::erase_if(cases, [](const std::string& name) { return name.starts_with("deepseek_v41/"); });
  return cases;
}
std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '/', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Cases, GpuGolden, ::testing::ValuesIn(AllCases()), TestName);
INSTANTIATE_TEST_SUITE_P(Cases, GpuGoldenFast, ::testing::ValuesIn(FastCases()), TestName);

// What rounding does to V4.1's tiny checkpoint was measured on the published formulas
// (tests/golden/deepseek_v41/make_rounded.py), over prompts and draws: mean 0.85, single runs 0.68
// to 1.07. The mean of a dozen runs of ours is uncertain by a twentieth of itself: a fifth more
// than the measured mean is four of those. (Without the activations that are rounded to fp8 it is
// 0.40.)
TEST(DeepseekV41Rounding, FastModeMovesTheLogitsAsFarAsItsFormatsDo) {
  const std::filesystem::path folder = kGolden / "deepseek_v41/tiny";
  const auto checkpoint = weights::Checkpoint::Open(folder).value();
  const auto measured = weights::Checkpoint::Open(folder / "rounded.safetensors").value();
  const auto prompts = testing::GoldenValues<int32_t>(measured, "prompts");
  const auto averages = testing::GoldenValues<float>(measured, "averages");
  const size_t tokens = static_cast<size_t>(measured.Tensor("prompts").value().shape[1]);
  const RunnerOptions exact = {
      .device = DeviceKind::kCuda, .page_tokens = 64, .num_pages = 64, .max_tokens = 320};
  RunnerOptions fast = exact;
  fast.precision = ops::MatmulPrecision::kFast;
  fast.kv_dtype = DType::kBF16;
  const auto exact_runner = ModelRunner::Create(checkpoint, exact).value();
  const auto fast_runner = ModelRunner::Create(checkpoint, fast).value();
  double sum = 0;
  for (size_t begin = 0; begin < prompts.size(); begin += tokens) {
    const std::vector<int32_t> prompt(prompts.begin() + static_cast<long>(begin),
                                      prompts.begin() + static_cast<long>(begin + tokens));
    const float average = AverageDifference(fast_runner->Step({{0, prompt, WantedLogits::kAll}}),
                                            exact_runner->Step({{0, prompt, WantedLogits::kAll}}));
    sum += average;
    fast_runner->Drop(0);
    exact_runner->Drop(0);
  }
  const double mean = sum / static_cast<double>(prompts.size() / tokens);
  const double expected =
      std::accumulate(averages.begin(), averages.end(), 0.0) / static_cast<double>(averages.size());
  EXPECT_LT(mean, 1.2 * expected);
}

}  // namespace
}  // namespace hayate::models
