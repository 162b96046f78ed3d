#include "weights/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "weights/testing/gguf_builder.h"
#include "weights/testing/temp_directory.h"

namespace hayate::weights {
namespace {

using ::testing::HasSubstr;

TEST(Describe, CountsParametersAndBytesByDtype) {
  const TempDirectory directory;
  GgufBuilder gguf;
  gguf.Set("general.architecture", "llama");
  gguf.Set("tokenizer.ggml.model", "gpt2");
  gguf.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  gguf.Set("tokenizer.ggml.eos_token_id", uint32_t{1});
  gguf.Set("tokenizer.chat_template", "line one\nline \"two\"");
  gguf.AddTensor("norm", {64}, std::vector<float>(64));
  const std::vector<std::byte> blocks(2 * 40);
  gguf.AddTensor("w", DType::kQ4_1, {2, 64}, blocks);
  gguf.Write(directory.path() / "model.gguf");

  const Result<Checkpoint> checkpoint = Checkpoint::Open(directory.path());
  ASSERT_TRUE(checkpoint.ok());
  const Result<CheckpointSummary> summary = Describe(*checkpoint);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->num_parameters, 64 + 128);
  EXPECT_EQ(summary->tensor_bytes, 256u + 80u);
  EXPECT_EQ(summary->dtypes.at("Q4_1").bytes, 80u);

  const std::string text = ToText(*summary);
  EXPECT_THAT(text, HasSubstr("architecture    llama\n"));
  EXPECT_THAT(text, HasSubstr("line one\\nline \"two\""));
  EXPECT_THAT(text, HasSubstr("eos 1"));

  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(ToJson(*summary, *checkpoint)).get(json), simdjson::SUCCESS);
  EXPECT_EQ(uint64_t(json["dtypes"]["Q4_1"]["bytes"]), 80u);
  EXPECT_EQ(std::string_view(json["tensors"].at(1)["name"]), "w");
  EXPECT_EQ(int64_t(json["special_tokens"]["eos"].at(0)), 1);
}

TEST(NumParameters, CountsWeightsNotBytesNorScales) {
  const auto count = [](const char* name, DType dtype, Shape shape) {
    return NumParameters(name, {.dtype = dtype, .shape = shape});
  };
  EXPECT_EQ(count("layers.0.ffn.experts.0.w1.weight", DType::kI8, {8, 16}), 256);
  EXPECT_EQ(count("layers.0.ffn.experts.0.w1.scale", DType::kF8E8M0, {8, 1}), 0);
  EXPECT_EQ(count("mlp.experts.down_proj_blocks", DType::kU8, {2, 3, 4, 16}), 768);
  EXPECT_EQ(count("mlp.experts.down_proj_scales", DType::kU8, {2, 3, 4}), 0);
  EXPECT_EQ(count("q_proj.weight_scale_inv", DType::kF32, {2, 3}), 0);
  EXPECT_EQ(count("layers.0.ffn.gate.tid2eid", DType::kI64, {320, 2}), 0);
  EXPECT_EQ(count("layers.0.hc_attn_scale", DType::kF32, {3}), 0);
  EXPECT_EQ(count("blk.0.attn_q.weight", DType::kQ4_K, {256, 256}), 65536);
}

}  // namespace
}  // namespace hayate::weights
