#include "weights/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "weights/testing/gguf_builder.h"
#include "weights/testing/safetensors_builder.h"
#include "weights/testing/temp_directory.h"

namespace hayate::weights {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  return checkpoint.ok() ? "no error" : checkpoint.status().ToString();
}

Checkpoint Open(const std::filesystem::path& path) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  CHECK(checkpoint.ok()) << checkpoint.status().ToString();
  return std::move(checkpoint).value();
}

GgufBuilder LlamaGguf() {
  GgufBuilder gguf;
  gguf.Set("general.architecture", "llama");
  gguf.Set("tokenizer.ggml.model", "gpt2");
  gguf.Set("tokenizer.ggml.pre", "smollm");
  gguf.Set("tokenizer.ggml.tokens", std::vector<std::string>{"<bos>", "<eos>", "a"});
  gguf.Set("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 1});
  gguf.Set("tokenizer.ggml.merges", std::vector<std::string>{"a a"});
  gguf.Set("tokenizer.ggml.bos_token_id", uint32_t{0});
  gguf.Set("tokenizer.ggml.eos_token_id", uint32_t{1});
  gguf.Set("tokenizer.ggml.eot_token_id", uint32_t{2});
  gguf.Set("tokenizer.ggml.padding_token_id", ~uint32_t{0});
  gguf.Set("tokenizer.ggml.add_bos_token", false);
  gguf.Set("tokenizer.chat_template", "{{ messages }}");
  gguf.Set("tokenizer.chat_template.tool_use", "{{ tools }}");
  gguf.AddTensor("w", {2, 2}, {1, 2, 3, 4});
  return gguf;
}

TEST(Checkpoint, OpensAGgufFileWithItsText) {
  const TempDirectory directory;
  LlamaGguf().Write(directory.path() / "model.gguf");
  for (const auto& path : {directory.path() / "model.gguf", directory.path()}) {
    const Checkpoint checkpoint = Open(path);
    EXPECT_EQ(checkpoint.format(), CheckpointFormat::kGguf);
    EXPECT_EQ(checkpoint.architecture(), "llama");
    EXPECT_EQ(checkpoint.Tensor("w", {2, 2})->as<float>()[3], 4.0f);
    const Result<TokenizerSource> source = checkpoint.Tokenizer();
    const auto& tokenizer = std::get<GgufTokenizer>(*source);
    EXPECT_EQ(tokenizer.pre, "smollm");
    EXPECT_THAT(tokenizer.tokens, ElementsAre("<bos>", "<eos>", "a"));
    EXPECT_THAT(tokenizer.token_types, ElementsAre(3, 3, 1));
    const SpecialTokens special = *checkpoint.ReadSpecialTokens();
    EXPECT_EQ(special.bos, 0);
    EXPECT_THAT(special.eos, ElementsAre(1, 2));
    EXPECT_EQ(special.pad, std::nullopt);
    EXPECT_EQ(special.add_bos, false);
    EXPECT_EQ(special.add_eos, std::nullopt);
    const auto templates = checkpoint.ChatTemplates();
    ASSERT_EQ(templates->size(), 2u);
    EXPECT_EQ((*templates)[1].name, "tool_use");
  }
}

TEST(Checkpoint, ViewsSurviveAMove) {
  const TempDirectory directory;
  LlamaGguf().Write(directory.path() / "model.gguf");
  Checkpoint first = Open(directory.path());
  const ConstTensorView view = *first.Tensor("w");
  const std::string_view text = *first.metadata().GetString("general.architecture");
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.Tensor("w")->data, view.data);
  EXPECT_EQ(text, "llama");
}

TEST(Checkpoint, ReleasedPagesReadTheSameAgain) {
  const TempDirectory directory;
  GgufBuilder gguf;
  gguf.Set("general.architecture", "llama");
  gguf.AddTensor("w", {64, 1024}, std::vector<float>(64 * 1024, 3.0f));
  gguf.Write(directory.path() / "model.gguf");
  const Checkpoint checkpoint = Open(directory.path());
  checkpoint.Prefetch("w");
  ASSERT_TRUE(checkpoint.CheckFinite("w").ok());
  checkpoint.Release("w");
  EXPECT_EQ(checkpoint.Tensor("w")->as<float>()[65535], 3.0f);
  checkpoint.Release("absent");
}

TEST(Checkpoint, PartsOfASplitGgufBecomeOneIndex) {
  const TempDirectory directory;
  for (uint16_t part = 0; part < 2; ++part) {
    GgufBuilder gguf = part == 0 ? LlamaGguf() : GgufBuilder();
    gguf.Set("split.no", part);
    gguf.Set("split.count", uint16_t{2});
    gguf.AddTensor("part" + std::to_string(part), {1}, {static_cast<float>(part)});
    gguf.Write(directory.path() / fmt::format("m-{:05}-of-00002.gguf", part + 1));
  }
  const Checkpoint checkpoint = Open(directory.path());
  EXPECT_EQ(checkpoint.Tensor("part1")->as<float>()[0], 1.0f);
  EXPECT_EQ(checkpoint.file_paths().size(), 2u);
  std::filesystem::remove(directory.path() / "m-00002-of-00002.gguf");
  EXPECT_THAT(ErrorOf(directory.path()), AllOf(HasSubstr("not_found"), HasSubstr("m-00002-of")));
}

TEST(Checkpoint, GgufErrorsNameTheFile) {
  const TempDirectory directory;
  const std::string file = LlamaGguf().Build();
  const auto path = directory.Write("cut.gguf", file.substr(0, file.size() - 40));
  EXPECT_THAT(ErrorOf(path), AllOf(HasSubstr("cut.gguf: tensor 'w'"), HasSubstr("offset")));
  EXPECT_THAT(ErrorOf(directory.path() / "absent.gguf"), HasSubstr("not_found"));
  EXPECT_THAT(ErrorOf(directory.Write("notes.txt", "")), HasSubstr("unsupported"));
  EXPECT_THAT(ErrorOf(directory.Write("empty.gguf", "")), HasSubstr("offset 0"));
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("name one of them"));
}

// A model directory with one or more shards.
void WriteConfig(const TempDirectory& directory) {
  directory.Write("config.json", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "bos_token_id": 5, "eos_token_id": 6, "hidden_size": 2})");
}

void WriteShard(const TempDirectory& directory, const std::string& file,
                const std::string& tensor) {
  SafetensorsBuilder builder;
  builder.AddTensor(tensor, {2}, {1, 2});
  builder.Write(directory.path() / file);
}

TEST(Checkpoint, OpensAModelDirectoryWithItsText) {
  const TempDirectory directory;
  WriteConfig(directory);
  WriteShard(directory, "model.safetensors", "w");
  directory.Write("generation_config.json", R"({"eos_token_id": [7, 6], "temperature": 0.5})");
  directory.Write("tokenizer.json", R"({"model": {}})");
  directory.Write("tokenizer_config.json", R"({"add_bos_token": true, "chat_template": [
      {"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  const Checkpoint checkpoint = Open(directory.path());
  EXPECT_EQ(checkpoint.format(), CheckpointFormat::kSafetensors);
  EXPECT_EQ(checkpoint.architecture(), "Qwen3ForCausalLM");
  EXPECT_EQ(*checkpoint.metadata().GetInt("hidden_size"), 2);
  EXPECT_EQ(*checkpoint.generation_config().GetFloat("temperature"), 0.5);
  EXPECT_EQ(checkpoint.Tensor("w")->as<float>()[1], 2.0f);
  const Result<TokenizerSource> source = checkpoint.Tokenizer();
  EXPECT_EQ(std::get<HfTokenizer>(*source).tokenizer_json, R"({"model": {}})");
  const SpecialTokens special = *checkpoint.ReadSpecialTokens();
  EXPECT_EQ(special.bos, 5);
  EXPECT_THAT(special.eos, ElementsAre(7, 6));
  EXPECT_EQ(special.add_bos, true);
  EXPECT_EQ((*checkpoint.ChatTemplates())[0].text, "D");
  directory.Write("chat_template.jinja", "J");
  EXPECT_EQ((*checkpoint.ChatTemplates())[0].text, "J");
  std::filesystem::create_directory(directory.path() / "additional_chat_templates");
  directory.Write("additional_chat_templates/tool_use.jinja", "T2");
  directory.Write("additional_chat_templates/rag.jinja", "R");
  directory.Write("additional_chat_templates/README.md", "no template");
  const std::vector<ChatTemplateSource> templates = *checkpoint.ChatTemplates();
  ASSERT_EQ(templates.size(), 3u);
  EXPECT_EQ(templates[0].name, "default");
  EXPECT_EQ(templates[1].name, "rag");
  EXPECT_EQ(templates[2].name, "tool_use");
  EXPECT_EQ(templates[2].text, "T2");

  const Checkpoint file = Open(directory.path() / "model.safetensors");
  EXPECT_EQ(file.architecture(), "Qwen3ForCausalLM");
  EXPECT_TRUE(file.Has("w"));
}

TEST(Checkpoint, AnIndexJoinsShards) {
  const TempDirectory directory;
  WriteConfig(directory);
  WriteShard(directory, "m-1.safetensors", "a");
  WriteShard(directory, "m-2.safetensors", "b");
  WriteShard(directory, "consolidated.safetensors", "a");  // not in the index: not opened
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("no model.safetensors.index.json"));
  const auto index = [&](const std::string& map) {
    directory.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  };
  index(R"("a":"m-1.safetensors","b":"m-2.safetensors")");
  EXPECT_EQ(Open(directory.path()).tensors().size(), 2u);
  index(R"("a":"m-2.safetensors","b":"m-1.safetensors")");
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("tensor 'a' is not in m-2.safetensors"));
  index(R"("a":"m-1.safetensors","c":"m-1.safetensors")");
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("tensor 'c' is not in m-1.safetensors"));
  index(R"("a":"m-1.safetensors","b":"m-3.safetensors")");
  EXPECT_THAT(ErrorOf(directory.path()),
              AllOf(HasSubstr("not_found"), HasSubstr("m-3.safetensors")));
  index(R"("a":"../m-1.safetensors")");
  EXPECT_THAT(ErrorOf(directory.path()),
              AllOf(HasSubstr("index.json: tensor 'a'"), HasSubstr("plain")));
  index(R"("a":"m-1.safetensors","b":"m-2.safetensors")");
  WriteShard(directory, "m-2.safetensors", "a");
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("tensor 'a' at offset"));
}

TEST(Checkpoint, ASymbolicLinkToItselfIsAnError) {
  const TempDirectory directory;
  WriteConfig(directory);
  directory.Write("model.safetensors.index.json", R"({"weight_map":{"a":"loop.safetensors"}})");
  std::filesystem::create_symlink("loop.safetensors", directory.path() / "loop.safetensors");
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("loop.safetensors"));
}

TEST(Checkpoint, BrokenConfigsNameTheFile) {
  const TempDirectory directory;
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("no config.json and no .gguf file"));
  directory.Write("config.json", "{\"a\":");
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("config.json: not valid JSON"));
  directory.Write("config.json", std::string(size_t{9} << 20, ' '));
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("payload_too_large"));
}

TEST(Checkpoint, WrongShapesAndMissingTensorsAreNamed) {
  const TempDirectory directory;
  LlamaGguf().Write(directory.path() / "model.gguf");
  const Checkpoint checkpoint = Open(directory.path());
  EXPECT_THAT(checkpoint.Tensor("w", {4, 1}).status().message(),
              AllOf(HasSubstr("model.gguf: tensor 'w' at offset"),
                    HasSubstr("shape is [2, 2], the model needs [4, 1]")));
  EXPECT_EQ(checkpoint.Tensor("v").status().code(), ErrorCode::kNotFound);
}

TEST(Checkpoint, LoadShardRefusesANaNScaleAndNamesItsOffset) {
  const TempDirectory directory;
  GgufBuilder gguf;
  gguf.Set("general.architecture", "llama");
  std::vector<std::byte> blocks(2 * 40);
  blocks[41] = std::byte{0x7E};  // the scale of row 1, block 0
  gguf.AddTensor("w", DType::kQ4_1, {2, 64}, blocks);
  gguf.Write(directory.path() / "model.gguf");
  const Checkpoint checkpoint = Open(directory.path());
  std::vector<std::byte> part(40);
  const TensorView out{part.data(), DType::kQ4_1, {1, 64}};
  EXPECT_TRUE(checkpoint.LoadShard("w", {ShardAxis::kRows, {0, 1}}, out).ok());
  const Status status = checkpoint.LoadShard("w", {ShardAxis::kRows, {1, 2}}, out);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("tensor 'w'"),
                    HasSubstr(fmt::format("block scale at offset {}", gguf.data_begin() + 40))));
  EXPECT_EQ(status.message(), checkpoint.CheckFinite("w").message());
}

TEST(Checkpoint, DummyTensorsStandInForMissingWeights) {
  const TempDirectory directory;
  WriteConfig(directory);
  Result<Checkpoint> checkpoint = Checkpoint::OpenConfig(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_TRUE(checkpoint->tensors().empty());
  EXPECT_FALSE(checkpoint->AddDummyTensors({{"w", DType::kQ4_1, {2, 48}}}, 1).ok());
  EXPECT_FALSE(
      checkpoint->AddDummyTensors({{"w", DType::kF32, {2}}, {"w", DType::kF32, {2}}}, 1).ok());
  ASSERT_TRUE(checkpoint->AddDummyTensors({{"w", DType::kQ4_1, {2, 64}}}, 1).ok());
  EXPECT_EQ(checkpoint->Tensor("w")->shape, (Shape{2, 64}));
  EXPECT_TRUE(checkpoint->CheckFinite("w").ok());
  EXPECT_FALSE(checkpoint->AddDummyTensors({}, 1).ok());
}

}  // namespace
}  // namespace hayate::weights
