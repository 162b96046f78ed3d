// Tiny checkpoints of every family against the logits of transformers (tests/golden).

#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "models/testing/golden_case.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::WantedLogits;
using testing::WorstDifference;

const std::filesystem::path kGolden = "tests/golden";
constexpr const char* kFolders[] = {"dense", "qwen_moe", "gpt_oss", "deepseek_v3", "deepseek_v32"};

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  Golden()
      : checkpoint_(weights::Checkpoint::Open(kGolden / GetParam()).value()),
        expected_(testing::ReadGoldenCase(kGolden / GetParam())) {}

  std::unique_ptr<ModelRunner> Runner(const RunnerOptions& options) {
    auto runner = ModelRunner::Create(checkpoint_, options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return std::move(runner).value();
  }
  size_t vocab() const { return expected_.logits.size() / expected_.input_ids.size(); }
  std::vector<int32_t> Prompt(size_t begin, size_t end) const {
    return {expected_.input_ids.begin() + static_cast<long>(begin),
            expected_.input_ids.begin() + static_cast<long>(end)};
  }
  // Logits of all prompt positions, the prompt cut into chunks of `chunk` tokens.
  std::vector<float> Chunked(ModelRunner& runner, size_t chunk, int sequence) {
    std::vector<float> all;
    const size_t length = expected_.input_ids.size();
    for (size_t begin = 0; begin < length; begin += chunk) {
      const auto& logits = runner.Step(
          {{sequence, Prompt(begin, std::min(length, begin + chunk)), WantedLogits::kAll}});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  weights::Checkpoint checkpoint_;
  const testing::GoldenCase expected_;
};

// oracles.md: fp32 implementations of these models differ by about 1e-5; 1e-4 catches any wrong
// formula.
constexpr float kExactTolerance = 1e-4f;

TEST_P(Golden, ExactModeGivesTheLogitsOfTransformersOnAnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3}) {
    const auto runner = Runner({.num_ranks = num_ranks});
    ASSERT_EQ(runner->vocab_size(), static_cast<int>(vocab()));
    std::vector<float> logits = runner->Step({{0, expected_.input_ids, WantedLogits::kAll}});
    EXPECT_LT(WorstDifference(logits, expected_.logits), kExactTolerance) << num_ranks << " ranks";

    for (size_t i = 0; i + 1 < expected_.greedy.size(); ++i) {
      logits = runner->Step({{0, {expected_.greedy[i]}}});
      const std::vector<float> row(
          expected_.greedy_logits.begin() + static_cast<long>((i + 1) * vocab()),
          expected_.greedy_logits.begin() + static_cast<long>((i + 2) * vocab()));
      EXPECT_LT(WorstDifference(logits, row), kExactTolerance) << "greedy token " << i + 1;
      EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), expected_.greedy[i + 1]);
    }
  }
}

TEST_P(Golden, EveryChunkingAndTokenByTokenDecodingGiveEqualBits) {
  for (const auto precision : {ops::MatmulPrecision::kExact, ops::MatmulPrecision::kFast}) {
    const auto runner = Runner({.num_ranks = 2, .precision = precision});
    const std::vector<float> whole = Chunked(*runner, expected_.input_ids.size(), 0);
    runner->Drop(0);
    for (size_t chunk = 1; chunk < expected_.input_ids.size(); chunk += chunk < 18 ? 1 : 7) {
      EXPECT_EQ(Chunked(*runner, chunk, 1), whole) << "chunks of " << chunk;
      runner->Drop(1);
    }
  }
}

TEST_P(Golden, ARowsLogitsDoNotDependOnItsBatch) {
  for (const auto precision : {ops::MatmulPrecision::kExact, ops::MatmulPrecision::kFast}) {
    const auto runner = Runner({.num_ranks = 2, .precision = precision});
    const std::vector<int32_t> other(expected_.input_ids.rbegin(), expected_.input_ids.rend());
    const std::vector<float> prefill = runner->Step({{0, Prompt(0, 20)}});
    const std::vector<float> decode = runner->Step({{0, Prompt(20, 21)}});
    // The same tokens between other sequences, mixed with a chunk that wants no logits.
    const auto beside =
        runner->Step({{1, {other.begin(), other.begin() + 5}},
                      {2, Prompt(0, 20)},
                      {3, {other.begin(), other.begin() + 11}, WantedLogits::kNone}});
    EXPECT_TRUE(
        std::equal(prefill.begin(), prefill.end(), beside.begin() + static_cast<long>(vocab())));
    const auto after =
        runner->Step({{3, {other[11], other[12]}}, {1, {other[5]}}, {2, Prompt(20, 21)}});
    EXPECT_TRUE(
        std::equal(decode.begin(), decode.end(), after.begin() + static_cast<long>(2 * vocab())));
  }
}

TEST_P(Golden, AStepWithoutLogitsFillsTheCache) {
  const auto runner = Runner({.num_ranks = 2});
  const std::vector<float> whole = runner->Step({{0, Prompt(0, 31)}});
  runner->Step({{1, Prompt(0, 30), WantedLogits::kNone}});
  EXPECT_EQ(runner->Step({{1, Prompt(30, 31)}}), whole);
}

// Where a router chooses, a small change of its input can change whole experts: that such modes
// stay close is a property of dense models alone.
class DenseGolden : public Golden {};

TEST_P(DenseGolden, SmallerCacheTypesAndFastModeStayClose) {
  // Logits are of order 1. f16 and bf16 round keys and values to 11 and 8 bits, int8 to 7 bits per
  // head; fast mode rounds activations to 8 bits (bf16 weights).
  const std::pair<DType, float> kCases[] = {
      {DType::kF16, 0.01f}, {DType::kBF16, 0.06f}, {DType::kI8, 0.15f}};
  for (const auto& [dtype, tolerance] : kCases) {
    const auto runner = Runner({.kv_dtype = dtype});
    EXPECT_LT(WorstDifference(Chunked(*runner, 40, 0), expected_.logits), tolerance)
        << Info(dtype).name;
  }
  const auto fast = Runner({.precision = ops::MatmulPrecision::kFast});
  EXPECT_LT(WorstDifference(Chunked(*fast, 40, 0), expected_.logits), 0.15f);
}

// Where a cache of latents can be had in both forms.
class LatentGolden : public Golden {};

TEST_P(LatentGolden, TheMaterialisedFormGivesTheSameLogits) {
  for (const int num_ranks : {1, 2}) {
    const auto runner =
        Runner({.num_ranks = num_ranks, .latent_form = ops::LatentForm::kMaterialised});
    for (const size_t chunk : {size_t{40}, size_t{11}}) {
      EXPECT_LT(WorstDifference(Chunked(*runner, chunk, 0), expected_.logits), kExactTolerance);
      runner->Drop(0);
    }
  }
}

TEST_P(Golden, PageSizeDoesNotChangeTheBits) {
  std::vector<float> first;
  for (const int32_t page_tokens : {1, 5, 16, 64}) {
    const auto runner = Runner({.page_tokens = page_tokens, .num_pages = 64 / page_tokens + 8});
    const std::vector<float> logits = Chunked(*runner, 13, 0);
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << page_tokens;
  }
}

// "<folder>/<case>" of the folders.
std::vector<std::string> Cases(std::span<const char* const> folders) {
  std::vector<std::string> cases;
  for (const std::string folder : folders) {
    for (const std::string& name : testing::GoldenCases(kGolden / folder)) {
      cases.push_back(folder + "/" + name);
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<std::string>& test) {
  return test.param.substr(test.param.find('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(Cases(kFolders)), CaseName);
INSTANTIATE_TEST_SUITE_P(Families, DenseGolden,
                         ::testing::ValuesIn(Cases(std::span(kFolders).first(1))), CaseName);

INSTANTIATE_TEST_SUITE_P(Families, LatentGolden,
                         ::testing::ValuesIn(Cases(std::span(kFolders).subspan(3, 1))), CaseName);

TEST(Golden, HasACaseOfEveryFamily) {
  const std::vector<std::string> cases = Cases(kFolders);
  for (const char* name : {"dense/llama", "dense/mistral_window_8", "dense/qwen2", "dense/qwen3",
                           "qwen_moe/qwen2_moe", "qwen_moe/qwen3_moe", "gpt_oss/gpt_oss",
                           "deepseek_v3/deepseek_v3", "deepseek_v32/deepseek_v32"}) {
    EXPECT_NE(std::ranges::find(cases, name), cases.end()) << name;
  }
}

}  // namespace
}  // namespace hayate::models
