// Mixtures of experts in GGUF files, as the gguf package names and stores them
// (tests/golden/gguf/make_gguf.py): against the logits of the models they were made from.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/testing/golden_case.h"
#include "models/testing/model_runner.h"
#include "weights/testing/temp_directory.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::WantedLogits;
namespace fs = std::filesystem;

const fs::path kGolden = "tests/golden";

std::vector<float> Logits(const fs::path& path, int num_ranks, const std::vector<int32_t>& tokens) {
  const auto checkpoint = weights::Checkpoint::Open(path).value();
  auto runner = ModelRunner::Create(checkpoint, {.num_ranks = num_ranks});
  EXPECT_TRUE(runner.ok()) << runner.status().ToString();
  return (*runner)->Step({{0, tokens, WantedLogits::kAll}});
}

TEST(GgufMixtures, QwensHaveTheOfficialLogits) {
  for (const std::string name : {"qwen2_moe", "qwen3_moe"}) {
    const testing::GoldenCase expected = testing::ReadGoldenCase(kGolden / "qwen_moe" / name);
    for (const int num_ranks : {1, 3}) {
      const auto logits =
          Logits(kGolden / "gguf" / (name + ".gguf"), num_ranks, expected.input_ids);
      EXPECT_LT(testing::WorstDifference(logits, expected.logits), 1e-4f)
          << name << " on " << num_ranks << " ranks";
    }
  }
}

// A file does not say where experts are clamped: it is at 7 then, as the released models have it.
TEST(GgufMixtures, GptOssHasTheLogitsOfItsOwnLayout) {
  const fs::path source = kGolden / "gpt_oss/gpt_oss";
  const weights::TempDirectory directory;
  fs::copy_file(source / "model.safetensors", directory.path() / "model.safetensors");
  auto config = nlohmann::json::parse(std::ifstream(source / "config.json"));
  config["swiglu_limit"] = 7.0;
  std::ofstream(directory.path() / "config.json") << config.dump();
  const testing::GoldenCase golden = testing::ReadGoldenCase(source);
  for (const int num_ranks : {1, 2}) {
    const auto expected = Logits(directory.path(), num_ranks, golden.input_ids);
    EXPECT_NE(expected, golden.logits);
    EXPECT_EQ(Logits(kGolden / "gguf/gpt_oss.gguf", num_ranks, golden.input_ids), expected);
  }
}

}  // namespace
}  // namespace hayate::models
