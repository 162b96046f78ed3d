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

}  // namespace
}  // namespace hayate::weights
