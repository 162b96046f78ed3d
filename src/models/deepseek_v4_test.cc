// Tiny DeepSeek V4 and V4.1 checkpoints against expected logits: of transformers
// (tests/golden/deepseek_v4), and of the published formulas in float64 (tests/golden/deepseek_v41).

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::WantedLogits;

const std::filesystem::path kGolden = "tests/golden";

template <typename T>
std::vector<T> Values(const weights::Checkpoint& file, std::string_view name) {
  const ConstTensorView tensor = file.Tensor(name).value();
  const T* values = reinterpret_cast<const T*>(tensor.data);
  return std::vector<T>(values, values + tensor.shape.num_elements());
}

class DeepseekV4 : public ::testing::TestWithParam<std::string> {
 protected:
  DeepseekV4() : checkpoint_(weights::Checkpoint::Open(kGolden / GetParam()).value()) {
    const auto file =
        weights::Checkpoint::Open(kGolden / GetParam() / "expected.safetensors").value();
    input_ids_ = Values<int32_t>(file, "input_ids");
    greedy_ = Values<int32_t>(file, "greedy");
    logits_ = Values<float>(file, "logits");
    greedy_logits_ = Values<float>(file, "greedy_logits");
  }

  std::unique_ptr<ModelRunner> Runner(RunnerOptions options) {
    options.num_pages = 64;
    options.max_tokens = 320;
    auto runner = ModelRunner::Create(checkpoint_, options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return std::move(runner).value();
  }
  size_t length() const { return input_ids_.size(); }
  size_t vocab() const { return logits_.size() / length(); }
  std::vector<int32_t> Prompt(size_t begin, size_t end) const {
    return {input_ids_.begin() + static_cast<long>(begin),
            input_ids_.begin() + static_cast<long>(end)};
  }
  // Logits of all positions, the prompt cut into chunks of `chunk` tokens.
  std::vector<float> Chunked(ModelRunner& runner, size_t chunk, int sequence) {
    std::vector<float> all;
    for (size_t begin = 0; begin < length(); begin += chunk) {
      const auto& logits = runner.Step(
          {{sequence, Prompt(begin, std::min(length(), begin + chunk)), WantedLogits::kAll}});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  weights::Checkpoint checkpoint_;
  std::vector<int32_t> input_ids_, greedy_;
  std::vector<float> logits_;         // [T, V]
  std::vector<float> greedy_logits_;  // [8, V]
};

float WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0.0f;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    worst = difference <= worst ? worst : difference;  // a NaN must not compare as close
  }
  return worst;
}

// Two fp32 implementations of these models differ by about 1e-5 over 300 tokens; a wrong base of
// the rotation, a transposed mixing matrix, a missing sink or a swapped nibble differ by 0.1 or
// more.
constexpr float kExactTolerance = 1e-4f;

TEST_P(DeepseekV4, ExactModeGivesTheExpectedLogitsOnAnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3}) {
    const auto runner = Runner({.num_ranks = num_ranks});
    std::vector<float> logits = runner->Step({{0, input_ids_, WantedLogits::kAll}});
    EXPECT_LT(WorstDifference(logits, logits_), kExactTolerance) << num_ranks << " ranks";
    for (size_t i = 0; i + 1 < greedy_.size(); ++i) {
      logits = runner->Step({{0, {greedy_[i]}}});
      const std::vector<float> row(greedy_logits_.begin() + static_cast<long>((i + 1) * vocab()),
                                   greedy_logits_.begin() + static_cast<long>((i + 2) * vocab()));
      EXPECT_LT(WorstDifference(logits, row), kExactTolerance) << "greedy token " << i + 1;
      EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), greedy_[i + 1]);
    }
  }
}

TEST_P(DeepseekV4, EveryChunkingAndTokenByTokenDecodingGiveEqualBits) {
  for (const auto precision : {ops::MatmulPrecision::kExact, ops::MatmulPrecision::kFast}) {
    const auto runner = Runner({.precision = precision});
    const std::vector<float> whole = Chunked(*runner, length(), 0);
    runner->Drop(0);
    for (const size_t chunk : {1, 5, 7, 64, 127, 128, 129}) {
      EXPECT_EQ(Chunked(*runner, chunk, 1), whole) << "chunks of " << chunk;
      runner->Drop(1);
    }
  }
}

TEST_P(DeepseekV4, ARowsLogitsDoNotDependOnItsBatch) {
  const auto runner = Runner({.num_ranks = 2});
  const std::vector<int32_t> other(input_ids_.rbegin(), input_ids_.rend());
  const std::vector<float> prefill = runner->Step({{0, Prompt(0, 140)}});
  const std::vector<float> decode = runner->Step({{0, Prompt(140, 141)}});
  const auto beside =
      runner->Step({{1, {other.begin(), other.begin() + 5}},
                    {2, Prompt(0, 140)},
                    {3, {other.begin(), other.begin() + 131}, WantedLogits::kNone}});
  EXPECT_TRUE(
      std::equal(prefill.begin(), prefill.end(), beside.begin() + static_cast<long>(vocab())));
  const auto after =
      runner->Step({{3, {other[131], other[132]}}, {1, {other[5]}}, {2, Prompt(140, 141)}});
  EXPECT_TRUE(
      std::equal(decode.begin(), decode.end(), after.begin() + static_cast<long>(2 * vocab())));
}

TEST_P(DeepseekV4, AStepWithoutLogitsFillsTheCache) {
  const auto runner = Runner({.num_ranks = 2});
  const std::vector<float> whole = runner->Step({{0, Prompt(0, 135)}});
  runner->Step({{1, Prompt(0, 134), WantedLogits::kNone}});
  EXPECT_EQ(runner->Step({{1, Prompt(134, 135)}}), whole);
}

TEST_P(DeepseekV4, PageSizeDoesNotChangeTheBits) {
  std::vector<float> first;
  for (const int32_t page_tokens : {32, 129, 384}) {
    const auto runner = Runner({.page_tokens = page_tokens});
    for (const CacheGroup& group : runner->model().cache_layout().groups) {
      EXPECT_EQ(runner->page_tokens() % group.ratio, 0) << group.name;
    }
    const std::vector<float> logits = Chunked(*runner, 77, 0);
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << page_tokens;
  }
}

TEST_P(DeepseekV4, ATokenChangesNothingBeforeIt) {
  const auto runner = Runner({});
  const std::vector<float> before = Chunked(*runner, length(), 0);
  for (const size_t changed : {3, 31, 64, 127, 130}) {
    const int32_t kept = std::exchange(input_ids_[changed], 200);
    const std::vector<float> after = Chunked(*runner, length(), 1);
    runner->Drop(1);
    const auto border = static_cast<long>(changed * vocab());
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + border, after.begin())) << changed;
    EXPECT_FALSE(std::equal(before.begin() + border, before.end(), after.begin() + border));
    input_ids_[changed] = kept;
  }
}

TEST_P(DeepseekV4, SmallerCacheTypesStayCloseAndKeepTheirBits) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    if (dtype == DType::kF8E4M3 && GetParam() != "deepseek_v4/wide" &&
        GetParam() != "deepseek_v41/tiny") {
      // Narrow heads have no whole blocks to quantise.
      const auto device = MakeCpuDevice(0);
      const Status status =
          LoadModel(checkpoint_, {.device = device.get(), .kv_dtype = dtype}).status();
      EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << status.message();
      continue;
    }
    const auto runner = Runner({.kv_dtype = dtype});
    const std::vector<float> logits = Chunked(*runner, length(), 0);
    EXPECT_EQ(Chunked(*runner, 7, 1), logits) << Info(dtype).name;
    if (dtype != DType::kBF16) continue;
    // Logits are of order 3. Rounding a latent to 8 bits moves them by hundredths; a choice of
    // entries or experts that flips moves some by tenths.
    std::vector<float> differences;
    for (size_t i = 0; i < logits.size(); ++i) {
      differences.push_back(std::abs(logits[i] - logits_[i]));
    }
    std::ranges::sort(differences);
    EXPECT_LT(differences[differences.size() / 2], 0.1f);
    EXPECT_LT(differences[differences.size() * 9 / 10], 0.8f);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DeepseekV4,
                         ::testing::Values("deepseek_v4/flash", "deepseek_v4/pro",
                                           "deepseek_v4/ratio_32", "deepseek_v4/wide",
                                           "deepseek_v41/tiny"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

// What a config must not say, and what the error must name.
struct BadConfig {
  const char* field;  // with a leading '/': its place in the file
  const char* value;
  std::vector<const char*> families = {"deepseek_v4/flash", "deepseek_v41/tiny"};
};

class DeepseekConfig : public ::testing::TestWithParam<BadConfig> {};

TEST_P(DeepseekConfig, ABadFieldIsNamed) {
  const std::string field = GetParam().field;
  for (const char* family : GetParam().families) {
    std::ifstream file(kGolden / family / "config.json");
    auto config = nlohmann::json::parse(file);
    auto& fields = config.contains("text_config") ? config["text_config"] : config;
    const auto value = nlohmann::json::parse(GetParam().value);
    if (field[0] == '/') {
      config[nlohmann::json::json_pointer(field)] = value;
    } else {
      fields[field] = value;
    }
    const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) /
                                         ("deepseek_config_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << config.dump();
    const auto checkpoint = weights::Checkpoint::OpenConfig(folder).value();
    const auto device = MakeCpuDevice(0);
    const Status status = LoadModel(checkpoint, {.device = device.get()}).status();
    ASSERT_FALSE(status.ok()) << family;
    EXPECT_NE(status.message().find(field.substr(field.rfind('/') + 1)), std::string::npos)
        << status.message();
    EXPECT_EQ(status.message().find(folder.string()), status.message().rfind(folder.string()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fields, DeepseekConfig,
    ::testing::Values(BadConfig{"scoring_func", "\"softmax\""}, BadConfig{"hc_mult", "2"},
                      BadConfig{"num_key_value_heads", "2"}, BadConfig{"o_groups", "3"},
                      BadConfig{"qk_rope_head_dim", "15"}, BadConfig{"sliding_window", "0"},
                      BadConfig{"compress_ratios", "[0, 4]"},
                      BadConfig{"compress_ratios", "[0, 0, 2, 2, 2, -1, 1, 1, 1, 1]"},
                      BadConfig{"index_head_dim", "8"}, BadConfig{"rms_norm_eps", "\"x\""},
                      BadConfig{"swiglu_limit", "0"}, BadConfig{"hidden_size", "1e30"},
                      BadConfig{"/quantization_config/weight_block_size", "[64, 64]"},
                      BadConfig{"/quantization_config/quant_method", "\"modelopt\""},
                      BadConfig{"/expert_dtype", "\"int4\""},
                      BadConfig{"num_hash_layers", "7", {"deepseek_v4/flash"}},
                      BadConfig{"hc_shifted", "false", {"deepseek_v41/tiny"}},
                      BadConfig{"dspark_target_attn_input", "false", {"deepseek_v41/tiny"}},
                      BadConfig{"index_k_source_layer_ids", "[2, 4]", {"deepseek_v41/tiny"}},
                      BadConfig{"engram_num_embeddings", "[630, 835]", {"deepseek_v41/tiny"}}),
    [](const auto& test) {
      const std::string field = test.param.field;
      return field.substr(field.rfind('/') + 1) + std::to_string(test.index);
    });

}  // namespace
}  // namespace hayate::models
