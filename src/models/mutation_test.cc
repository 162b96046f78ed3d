// The golden comparison must notice what is easy to get wrong: each test breaks one thing of a
// golden checkpoint and expects logits far from the official ones.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "models/testing/golden_case.h"
#include "models/testing/model_runner.h"
#include "weights/testing/temp_directory.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using Json = nlohmann::json;
namespace fs = std::filesystem;

// A hundred times what the golden tests allow.
constexpr float kClearlyWrong = 1e-2f;

// A copy of a golden checkpoint that may be broken.
class Copy {
 public:
  explicit Copy(const std::string& name) : from_(fs::path("tests/golden") / name) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(from_ / file, directory_.path() / file);
    }
  }

  void EditConfig(const std::function<void(Json&)>& edit) const {
    const fs::path path = directory_.path() / "config.json";
    Json config = Json::parse(std::ifstream(path));
    edit(config);
    std::ofstream(path) << config.dump();
  }
  // Calls `edit` on every byte of each tensor whose name ends in `suffix`.
  void EditBytes(std::string_view suffix, const std::function<uint8_t(uint8_t)>& edit) const {
    const auto checkpoint = weights::Checkpoint::Open(directory_.path()).value();
    std::fstream file(directory_.path() / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    int edited = 0;
    for (const auto& [name, info] : checkpoint.tensors()) {
      if (!name.ends_with(suffix)) continue;
      std::string bytes(info.bytes, 0);
      file.seekg(static_cast<std::streamoff>(info.offset));
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      for (char& byte : bytes) byte = static_cast<char>(edit(static_cast<uint8_t>(byte)));
      file.seekp(static_cast<std::streamoff>(info.offset));
      file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      ++edited;
    }
    ASSERT_GT(edited, 0) << suffix;
  }

  // How far the logits of the prompt are from the official ones.
  float Error() const {
    const testing::GoldenCase expected = testing::ReadGoldenCase(from_);
    const auto checkpoint = weights::Checkpoint::Open(directory_.path()).value();
    auto runner = ModelRunner::Create(checkpoint, {});
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return testing::WorstDifference(
        (*runner)->Step({{0, expected.input_ids, testing::WantedLogits::kAll}}), expected.logits);
  }

 private:
  const fs::path from_;
  const weights::TempDirectory directory_;
};

uint8_t SwapNibbles(uint8_t byte) { return static_cast<uint8_t>(byte << 4 | byte >> 4); }
// Both bytes of a bf16 zero.
uint8_t Zero(uint8_t) { return 0; }

TEST(Mutation, AnUntouchedCopyIsRight) {
  EXPECT_LT(Copy("gpt_oss/gpt_oss").Error(), 1e-4f);
  EXPECT_LT(Copy("qwen_moe/qwen2_moe").Error(), 1e-4f);
}

TEST(Mutation, AWrongRopeBaseShows) {
  const Copy gpt_oss("gpt_oss/gpt_oss"), qwen("qwen_moe/qwen3_moe");
  gpt_oss.EditConfig([](Json& config) { config["rope_theta"] = 10000.0; });
  qwen.EditConfig([](Json& config) { config["rope_parameters"]["rope_theta"] = 10000.0; });
  EXPECT_GT(gpt_oss.Error(), kClearlyWrong);
  EXPECT_GT(qwen.Error(), kClearlyWrong);
}

TEST(Mutation, SwappedNibblesShow) {
  const Copy copy("gpt_oss/gpt_oss");
  copy.EditBytes("_blocks", SwapNibbles);
  EXPECT_GT(copy.Error(), kClearlyWrong);
}

TEST(Mutation, AnotherSinkShows) {
  const Copy copy("gpt_oss/gpt_oss");
  copy.EditBytes("self_attn.sinks", Zero);
  EXPECT_GT(copy.Error(), kClearlyWrong);
}

TEST(Mutation, AnotherWindowOrYarnRangeShows) {
  const Copy window("gpt_oss/gpt_oss"), truncated("gpt_oss/gpt_oss");
  window.EditConfig([](Json& config) { config["sliding_window"] = 9; });
  truncated.EditConfig([](Json& config) { config["rope_scaling"]["truncate"] = true; });
  EXPECT_GT(window.Error(), kClearlyWrong);
  EXPECT_GT(truncated.Error(), 1e-3f);
}

TEST(Mutation, ForgottenRenormalisationAndSharedGateShow) {
  const Copy scale("qwen_moe/qwen3_moe"), gate("qwen_moe/qwen2_moe");
  scale.EditConfig([](Json& config) { config["norm_topk_prob"] = false; });
  gate.EditBytes("shared_expert_gate.weight", Zero);
  EXPECT_GT(scale.Error(), kClearlyWrong);
  EXPECT_GT(gate.Error(), kClearlyWrong);
}

TEST(Mutation, DeepseeksRotationRouterAndIndexerShow) {
  const char* v3 = "deepseek_v3/deepseek_v3";
  const Copy base(v3), mscale(v3), bias(v3), groups(v3), fewer("deepseek_v32/deepseek_v32");
  base.EditConfig([](Json& config) { config["rope_theta"] = 9000.0; });
  mscale.EditConfig([](Json& config) { config["rope_scaling"]["mscale_all_dim"] = 0.5; });
  bias.EditBytes("e_score_correction_bias", Zero);
  groups.EditConfig([](Json& config) { config["topk_group"] = 4; });
  fewer.EditConfig([](Json& config) { config["index_topk"] = 11; });
  EXPECT_GT(base.Error(), kClearlyWrong);
  EXPECT_GT(mscale.Error(), kClearlyWrong);
  EXPECT_GT(bias.Error(), kClearlyWrong);
  EXPECT_GT(groups.Error(), kClearlyWrong);
  EXPECT_GT(fewer.Error(), kClearlyWrong);
}

}  // namespace
}  // namespace hayate::models
