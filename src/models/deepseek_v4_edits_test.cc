// What the golden logits of DeepSeek V4 and V4.1 are sensitive to: each edit of a checkpoint, or of
// what the cache holds between two steps, stands for a mistake in the code, and moves them far
// beyond the tolerance of the golden test.

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

const std::filesystem::path kV4 = "tests/golden/deepseek_v4/ratio_32";
const std::filesystem::path kV41 = "tests/golden/deepseek_v41/tiny";

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

// The fields of the text model.
nlohmann::json& Fields(EditedCheckpoint& c) {
  return c.config.contains("text_config") ? c.config["text_config"] : c.config;
}

// Of both models.
const EditCase kSharedEdits[] = {
    {"RopeBaseOfCompressedLayers",
     [](EditedCheckpoint& c) { Fields(c)["compress_rope_theta"] = 10000; }},
    {"RopeBaseOfWindowLayers", [](EditedCheckpoint& c) { Fields(c)["rope_theta"] = 160000; }},
    {"YarnFactor", [](EditedCheckpoint& c) { Fields(c)["rope_scaling"]["factor"] = 1; }},
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
    {"WindowOffByOne", [](EditedCheckpoint& c) { Fields(c)["sliding_window"] = 17; }},
    {"OneEntryMore", [](EditedCheckpoint& c) { Fields(c)["index_topk"] = 9; }},
    {"FewerScalings", [](EditedCheckpoint& c) { Fields(c)["hc_sinkhorn_iters"] = 1; }},
    {"NoClamp", [](EditedCheckpoint& c) { Fields(c)["swiglu_limit"] = 1e6; }},
    {"RouteScale", [](EditedCheckpoint& c) { Fields(c)["routed_scaling_factor"] = 1.0; }},
};

const EditCase kV4Edits[] = {
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
};

const EditCase kV41Edits[] = {
    {"PlainPooling",
     [](EditedCheckpoint& c) {
       c.Edit(".compressor.wgate.weight",
              [](std::byte* data, size_t bytes) { std::fill_n(data, bytes, std::byte{0}); });
     }},
    {"AnotherTokenMap",
     [](EditedCheckpoint& c) {
       c.Edit("engram.token_map",
              [](std::byte* data, size_t) { std::swap(data[0], data[4 * 77]); });
     }},
    {"NoEngram",
     [](EditedCheckpoint& c) {
       c.Edit(".engram.wkv.weight",
              [](std::byte* data, size_t bytes) { std::fill_n(data, bytes, std::byte{0}); });
     }},
    {"FewerCandidates", [](EditedCheckpoint& c) { Fields(c)["candidate_topk_blocks"] = 2; }},
    {"AnotherIndexKeyNorm",
     [](EditedCheckpoint& c) {
       c.Edit(".indexer.k_norm.weight", [](std::byte* data, size_t bytes) {
         std::reverse(reinterpret_cast<uint16_t*>(data), reinterpret_cast<uint16_t*>(data + bytes));
       });
     }},
};

struct EditParam {
  std::filesystem::path source;
  EditCase edit;
};
std::vector<EditParam> AllEdits() {
  std::vector<EditParam> all;
  for (const EditCase& edit : kSharedEdits) {
    all.push_back({kV4, edit});
    all.push_back({kV41, edit});
  }
  for (const EditCase& edit : kV4Edits) all.push_back({kV4, edit});
  for (const EditCase& edit : kV41Edits) all.push_back({kV41, edit});
  return all;
}

class DeepseekV4Edits : public ::testing::TestWithParam<EditParam> {};

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
  EditedCheckpoint checkpoint(GetParam().source, Folder());
  const std::vector<float> before = Logits(checkpoint.Open(), Tokens());
  GetParam().edit.edit(checkpoint);
  const std::vector<float> after = Logits(checkpoint.Open(), Tokens());
  float worst = 0.0f;
  for (size_t i = 0; i < before.size(); ++i) {
    worst = std::max(worst, std::abs(before[i] - after[i]));
  }
  EXPECT_GT(worst, 0.01f);  // a hundred tolerances
}

INSTANTIATE_TEST_SUITE_P(Mistakes, DeepseekV4Edits, ::testing::ValuesIn(AllEdits()),
                         [](const auto& test) {
                           return (test.param.source == kV4 ? "V4_" : "V41_") +
                                  std::string(test.param.edit.name);
                         });

// What a compressor keeps between two steps, lost: a step that begins inside a block, or behind a
// page, shows it.
struct LostState {
  std::filesystem::path source;
  const char* group;
  int32_t at;  // where the second step begins
};

class DeepseekV4LostStates : public ::testing::TestWithParam<LostState> {};

TEST_P(DeepseekV4LostStates, MoveTheLogits) {
  const auto checkpoint = weights::Checkpoint::Open(GetParam().source).value();
  const auto runner =
      ModelRunner::Create(checkpoint, {.page_tokens = 32, .num_pages = 16, .max_tokens = 320})
          .value();
  const std::vector<int32_t> tokens = Tokens();
  const std::vector<int32_t> first(tokens.begin(), tokens.begin() + GetParam().at);
  const std::vector<int32_t> second(tokens.begin() + GetParam().at, tokens.end());
  const auto run = [&](bool loses) {
    runner->Step({{0, first, WantedLogits::kNone}});
    if (loses) runner->Wipe(GetParam().group);
    std::vector<float> logits = runner->Step({{0, second, WantedLogits::kAll}});
    runner->Drop(0);
    return logits;
  };
  const std::vector<float> kept = run(false), lost = run(true);
  float worst = 0.0f;
  for (size_t i = 0; i < kept.size(); ++i) worst = std::max(worst, std::abs(kept[i] - lost[i]));
  EXPECT_GT(worst, 0.01f);
}

INSTANTIATE_TEST_SUITE_P(
    Groups, DeepseekV4LostStates,
    ::testing::Values(LostState{kV4, "pending", 70}, LostState{kV4, "overlap", 64},
                      LostState{kV4, "window", 64}, LostState{kV4, "compressed_32", 64},
                      LostState{kV4, "compressed_4", 64}, LostState{kV41, "pending", 71},
                      LostState{kV41, "window", 64}, LostState{kV41, "entries_1", 64},
                      LostState{kV41, "entries_2", 64}, LostState{kV41, "engram_tokens", 64}),
    [](const auto& test) {
      return (test.param.source == kV4 ? "V4_" : "V41_") + std::string(test.param.group);
    });

TEST(DeepseekV4ExpertLists, ATokensExpertListMattersFromItsFirstPositionOn) {
  EditedCheckpoint checkpoint(kV4, Folder());
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
