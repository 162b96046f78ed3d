// What a single layer of DeepSeek V4 sees, and what its weights are: a checkpoint is cut down to
// one layer, so that nothing reaches further through the layers between.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "models/testing/edited_checkpoint.h"
#include "models/testing/model_runner.h"
#include "tensor/dtype.h"

namespace hayate::models {
namespace {

using testing::EditedCheckpoint;
using testing::ModelRunner;
using testing::WantedLogits;

const std::filesystem::path kSource = "tests/golden/deepseek_v4/ratio_32";
constexpr int32_t kWindow = 16;

class DeepseekLayers : public ::testing::Test {
 protected:
  DeepseekLayers()
      : edited_(kSource, std::filesystem::path(::testing::TempDir()) /
                             ("deepseek_layers_" + std::to_string(::getpid()))) {}

  // Layer `layer` alone.
  void Keep(int layer) {
    const std::string kept = "layers." + std::to_string(layer) + ".";
    std::map<std::string, EditedCheckpoint::Tensor> tensors;
    for (auto& [name, tensor] : edited_.tensors) {
      if (name.starts_with(kept)) {
        tensors["layers.0." + name.substr(kept.size())] = std::move(tensor);
      } else if (!name.starts_with("layers.")) {
        tensors[name] = std::move(tensor);
      }
    }
    edited_.tensors = std::move(tensors);
    edited_.config["num_hidden_layers"] = 1;
    edited_.config["num_hash_layers"] = layer < 2 ? 1 : 0;
    const int ratio = edited_.config["compress_ratios"][static_cast<size_t>(layer)];
    edited_.config["compress_ratios"] = {ratio};
  }

  std::vector<float> Logits(const std::vector<int32_t>& tokens) const {
    const weights::Checkpoint checkpoint = edited_.Open();
    const auto runner =
        ModelRunner::Create(checkpoint, {.num_pages = 16, .max_tokens = 320}).value();
    return runner->Step({{0, tokens, WantedLogits::kAll}});
  }

  // The positions whose logits differ when the token at `changed` does.
  static std::vector<int32_t> Reached(ModelRunner& runner, int32_t count, int32_t changed) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; ++i) tokens.push_back(3 + i * i % 251);
    const std::vector<float> before = runner.Step({{0, tokens, WantedLogits::kAll}});
    tokens[static_cast<size_t>(changed)] ^= 1;
    const std::vector<float> after = runner.Step({{1, tokens, WantedLogits::kAll}});
    runner.Drop(0);
    runner.Drop(1);
    std::vector<int32_t> reached;
    const int64_t vocab = runner.vocab_size();
    for (int64_t p = 0; p < count; ++p) {
      const auto row = before.begin() + p * vocab;
      if (!std::equal(row, row + vocab, after.begin() + p * vocab)) {
        reached.push_back(static_cast<int32_t>(p));
      }
    }
    return reached;
  }
  std::vector<int32_t> Reached(int32_t count, int32_t changed) const {
    const weights::Checkpoint checkpoint = edited_.Open();
    const auto runner =
        ModelRunner::Create(checkpoint, {.num_pages = 32, .max_tokens = 320}).value();
    return Reached(*runner, count, changed);
  }

  EditedCheckpoint edited_;
};

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> values;
  for (int32_t i = begin; i < end; ++i) values.push_back(i);
  return values;
}

std::vector<int32_t> Ranges(int32_t begin, int32_t end, int32_t again, int32_t last) {
  std::vector<int32_t> values = Range(begin, end);
  for (int32_t i = again; i < last; ++i) values.push_back(i);
  return values;
}

TEST_F(DeepseekLayers, AWindowLayerSeesATokenForOneWindow) {
  Keep(0);
  for (const int32_t token : {0, 3, 20}) {
    EXPECT_EQ(Reached(60, token), Range(token, token + kWindow)) << token;
  }
}

TEST_F(DeepseekLayers, ABlocksEntryIsSeenFromTheTokenOnThatCompletesIt) {
  Keep(1);  // blocks of 32
  EXPECT_EQ(Reached(100, 5), Ranges(5, 5 + kWindow, 31, 100));
  EXPECT_EQ(Reached(100, 15), Range(15, 100));  // the window reaches up to the block's end
  EXPECT_EQ(Reached(100, 40), Ranges(40, 40 + kWindow, 63, 100));
  EXPECT_EQ(Reached(60, 40), Range(40, 40 + kWindow));  // its block is not complete
}

TEST_F(DeepseekLayers, AnOverlappingEntryHoldsTheBlockBeforeToo) {
  Keep(2);  // blocks of 4, each with the first halves of the one before
  edited_.config["sliding_window"] = 2;
  edited_.config["index_topk"] = 64;
  EXPECT_EQ(Reached(40, 4), Ranges(4, 6, 7, 40));
  // Alone the entry of the next block is left when the own block's second halves count for nothing.
  edited_.Edit("layers.0.attn.compressor.ape", [](std::byte* data, size_t bytes) {
    const size_t width = bytes / sizeof(float) / 4;
    auto* values = reinterpret_cast<float*>(data);
    for (size_t i = 0; i < 4 * width; ++i) values[i] += i % width < width / 2 ? 1e4f : 0.0f;
  });
  EXPECT_EQ(Reached(40, 8), Ranges(8, 10, 15, 40));
}

TEST_F(DeepseekLayers, HugeSinksLeaveATokenItselfAlone) {
  for (auto& [name, tensor] : edited_.tensors) {
    if (!name.ends_with(".attn_sink")) continue;
    auto* values = reinterpret_cast<float*>(tensor.bytes.data());
    std::fill_n(values, tensor.bytes.size() / sizeof(float), 1e4f);
  }
  EXPECT_EQ(Reached(200, 50), Range(50, 51));  // of all six layers
}

TEST_F(DeepseekLayers, UpToTopKEntriesTheIndexerPlaysNoPart) {
  const std::vector<int32_t> tokens = [] {
    std::vector<int32_t> values;
    for (int32_t i = 0; i < 150; ++i) values.push_back(3 + i * i % 251);
    return values;
  }();
  const std::vector<float> before = Logits(tokens);
  edited_.Edit("indexer.weights_proj.weight", [](std::byte* data, size_t bytes) {
    std::reverse(reinterpret_cast<uint16_t*>(data), reinterpret_cast<uint16_t*>(data + bytes));
  });
  const std::vector<float> after = Logits(tokens);
  // Entry 8, the ninth, is there from position 35 on.
  const auto border = static_cast<std::ptrdiff_t>(before.size() / tokens.size() * 35);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + border, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + border, before.end(), after.begin() + border));
}

// Rotations by a difference alone: in fp32 an angle of 64 + 200 radians is off by about 2e-5.
TEST_F(DeepseekLayers, PositionsCountFromAnywhereWhereThereAreOnlyWindows) {
  edited_.config["compress_ratios"] = std::vector<int>(6, 0);
  const weights::Checkpoint checkpoint = edited_.Open();
  const auto runner = ModelRunner::Create(checkpoint, {.num_pages = 64, .max_tokens = 320}).value();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 200; ++i) tokens.push_back(3 + i * i % 251);
  const std::vector<float> from_zero = runner->Step({{0, tokens, WantedLogits::kAll}});
  runner->StartAt(1, 64);
  const std::vector<float> shifted = runner->Step({{1, tokens, WantedLogits::kAll}});
  ASSERT_EQ(from_zero.size(), shifted.size());
  float worst = 0.0f;
  for (size_t i = 0; i < shifted.size(); ++i) {
    const float difference = std::abs(shifted[i] - from_zero[i]);
    worst = difference <= worst ? worst : difference;
  }
  EXPECT_LT(worst, 1e-3f);
  EXPECT_NE(shifted, from_zero);
}

// The value of an E2M1 code, and the E4M3 code of a value that has one.
float E2m1(uint32_t code) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return (code & 8 ? -1.0f : 1.0f) * kMagnitudes[code & 7];
}
uint8_t E4m3(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (value == 0.0f) return sign;
  int exponent = 0;
  const float fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  const int biased = exponent - 1 + 7;
  if (biased <= 0) {  // below 2⁻⁶: multiples of 2⁻⁹
    return sign | static_cast<uint8_t>(std::ldexp(std::abs(value), 9));
  }
  const auto mantissa = static_cast<uint8_t>((fraction * 2.0f - 1.0f) * 8.0f);
  return static_cast<uint8_t>(sign | biased << 3 | mantissa);
}

// [N, K/2] codes and [N, K/32] exponents → [N, K] E4M3 under one exponent for 128 × 128, E − 6 with
// E the largest of the tile's: exact while the exponents are no more than 14 apart.
void WidenExperts(EditedCheckpoint& edited) {
  for (auto& [name, codes] : edited.tensors) {
    if (name.find(".experts.") == std::string::npos || !name.ends_with(".weight")) continue;
    auto& scales = edited.tensors.at(name.substr(0, name.size() - 6) + "scale");
    const int64_t n = codes.shape[0], k = 2 * codes.shape[1];
    ASSERT_LE(std::max(n, k), 128);
    const auto most = static_cast<uint8_t>(*std::max_element(
        scales.bytes.begin(), scales.bytes.end(),
        [](char a, char b) { return static_cast<uint8_t>(a) < static_cast<uint8_t>(b); }));
    std::string wide(static_cast<size_t>(n * k), '\0');
    for (int64_t i = 0; i < n * k; ++i) {
      const auto byte = static_cast<uint8_t>(codes.bytes[static_cast<size_t>(i / 2)]);
      const auto exponent = static_cast<uint8_t>(scales.bytes[static_cast<size_t>(i / 32)]);
      const float value = std::ldexp(E2m1(i % 2 == 0 ? byte & 15 : byte >> 4), exponent - most + 6);
      wide[static_cast<size_t>(i)] = static_cast<char>(E4m3(value));
    }
    codes = {"F8_E4M3", {n, k}, std::move(wide)};
    scales = {"F8_E8M0", {1, 1}, std::string(1, static_cast<char>(most - 6))};
  }
  edited.config["expert_dtype"] = "fp8";
}

TEST_F(DeepseekLayers, ExpertsInFp4AndWidenedToFp8GiveTheSameBits) {
  const std::vector<int32_t> tokens = Range(10, 110);
  const std::vector<float> fp4 = Logits(tokens);
  WidenExperts(edited_);
  EXPECT_EQ(Logits(tokens), fp4);
}

}  // namespace
}  // namespace hayate::models
