// What the golden logits of tests/golden/deepseek_v4 are sensitive to: each edit of a checkpoint
// stands for a mistake in the code, and moves them far beyond the tolerance of the golden test.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "models/testing/edited_checkpoint.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::EditedCheckpoint;
using testing::ModelRunner;
using testing::WantedLogits;

const std::filesystem::path kSource = "tests/golden/deepseek_v4/ratio_32";

void ForEachFloat(std::byte* data, size_t bytes, const std::function<float(size_t, float)>& edit) {
  for (size_t i = 0; i * sizeof(float) < bytes; ++i) {
    float value;
    std::memcpy(&value, data + i * sizeof(float), sizeof(float));
    value = edit(i, value);
    std::memcpy(data + i * sizeof(float), &value, sizeof(float));
  }
}

// Swaps the entries (j, k) and (k, j) of the 4 × 4 matrices in rows 8 … 23 of `width` floats.
void TransposeMixing(std::byte* data, size_t bytes) {
  const size_t row = bytes / 24;
  for (size_t j = 0; j < 4; ++j) {
    for (size_t k = 0; k < j; ++k) {
      std::swap_ranges(data + (8 + 4 * j + k) * row, data + (9 + 4 * j + k) * row,
                       data + (8 + 4 * k + j) * row);
    }
  }
}

struct EditCase {
  const char* name;
  void (*edit)(EditedCheckpoint& checkpoint);
};

const EditCase kEdits[] = {
    {"RopeBaseOfCompressedLayers",
     [](EditedCheckpoint& c) { c.config["compress_rope_theta"] = 10000; }},
    {"RopeBaseOfWindowLayers", [](EditedCheckpoint& c) { c.config["rope_theta"] = 160000; }},
    {"YarnFactor", [](EditedCheckpoint& c) { c.config["rope_scaling"]["factor"] = 1; }},
    {"NoSink",
     [](EditedCheckpoint& c) {
       c.Edit(".attn_sink", [](std::byte* data, size_t bytes) {
         ForEachFloat(data, bytes, [](size_t, float) { return -1e4f; });
       });
     }},
    {"SwappedNibbles",
     [](EditedCheckpoint& c) {
       c.Edit(".experts.0.w1.weight", [](std::byte* data, size_t bytes) {
         for (size_t i = 0; i < bytes; ++i) data[i] = data[i] << 4 | data[i] >> 4;
       });
     }},
    {"TransposedMixing",
     [](EditedCheckpoint& c) {
       for (const char* name : {"hc_attn_fn", "hc_attn_base", "hc_ffn_fn", "hc_ffn_base"}) {
         c.Edit(name, TransposeMixing);
       }
     }},
    {"NoPositionsInsideBlocks",
     [](EditedCheckpoint& c) {
       c.Edit(".attn.compressor.ape", [](std::byte* data, size_t bytes) {
         ForEachFloat(data, bytes, [](size_t, float) { return 0.0f; });
       });
     }},
    {"NoOverlap",
     [](EditedCheckpoint& c) {
       // Gates of the first half so low that the block before never counts.
       c.Edit("layers.2.attn.compressor.ape", [](std::byte* data, size_t bytes) {
         const size_t width = bytes / sizeof(float) / 4;
         ForEachFloat(data, bytes, [width](size_t i, float value) {
           return i % width < width / 2 ? -1e4f : value;
         });
       });
     }},
    {"WindowOffByOne", [](EditedCheckpoint& c) { c.config["sliding_window"] = 17; }},
    {"OneEntryMore", [](EditedCheckpoint& c) { c.config["index_topk"] = 9; }},
    {"FewerScalings", [](EditedCheckpoint& c) { c.config["hc_sinkhorn_iters"] = 1; }},
    {"NoClamp", [](EditedCheckpoint& c) { c.config["swiglu_limit"] = 1e6; }},
    {"RouteScale", [](EditedCheckpoint& c) { c.config["routed_scaling_factor"] = 1.0; }},
};

class DeepseekV4Edits : public ::testing::TestWithParam<EditCase> {};

std::filesystem::path Folder() {
  return std::filesystem::path(::testing::TempDir()) /
         ("deepseek_v4_edits_" + std::to_string(::getpid()));
}

std::vector<float> Logits(const weights::Checkpoint& checkpoint,
                          const std::vector<int32_t>& tokens) {
  const auto runner = ModelRunner::Create(checkpoint, {.num_pages = 16, .max_tokens = 320}).value();
  return runner->Step({{0, tokens, WantedLogits::kAll}});
}

std::vector<int32_t> Tokens() {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 150; ++i) tokens.push_back(3 + i * i % 251);
  return tokens;
}

TEST_P(DeepseekV4Edits, MoveTheLogits) {
  EditedCheckpoint checkpoint(kSource, Folder());
  const std::vector<float> before = Logits(checkpoint.Open(), Tokens());
  GetParam().edit(checkpoint);
  const std::vector<float> after = Logits(checkpoint.Open(), Tokens());
  float worst = 0.0f;
  for (size_t i = 0; i < before.size(); ++i) {
    worst = std::max(worst, std::abs(before[i] - after[i]));
  }
  EXPECT_GT(worst, 0.01f);  // a hundred tolerances
}

INSTANTIATE_TEST_SUITE_P(Mistakes, DeepseekV4Edits, ::testing::ValuesIn(kEdits),
                         [](const auto& test) { return test.param.name; });

TEST(DeepseekV4ExpertLists, ATokensExpertListMattersFromItsFirstPositionOn) {
  EditedCheckpoint checkpoint(kSource, Folder());
  const std::vector<int32_t> tokens = Tokens();
  const std::vector<float> before = Logits(checkpoint.Open(), tokens);
  const int32_t id = tokens[90];
  const auto first = std::find(tokens.begin(), tokens.end(), id) - tokens.begin();
  const size_t vocab = before.size() / tokens.size();
  checkpoint.Edit("layers.0.ffn.gate.tid2eid", [id](std::byte* data, size_t) {
    for (int k = 0; k < 2; ++k) {
      int64_t expert;
      std::memcpy(&expert, data + (id * 2 + k) * 8, 8);
      expert = (expert + 3) % 8;
      std::memcpy(data + (id * 2 + k) * 8, &expert, 8);
    }
  });
  const std::vector<float> after = Logits(checkpoint.Open(), tokens);
  const auto border = first * static_cast<long>(vocab);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + border, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + border,
                          before.begin() + border + static_cast<long>(vocab),
                          after.begin() + border));
}

}  // namespace
}  // namespace hayate::models
