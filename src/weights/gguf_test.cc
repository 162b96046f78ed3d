#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "tensor/tensor_view.h"
#include "weights/testing/gguf_builder.h"

namespace hayate::weights {
namespace {

using ::testing::HasSubstr;

Result<GgufContents> Parse(const std::string& file) {
  return ParseGguf(std::as_bytes(std::span(file)));
}

std::string ErrorOf(const std::string& file) {
  const Result<GgufContents> contents = Parse(file);
  return contents.ok() ? "no error" : contents.status().ToString();
}

GgufBuilder SmallModel(uint32_t version = 3) {
  GgufBuilder gguf(version);
  gguf.Set("general.architecture", "llama");
  gguf.Set("llama.block_count", uint32_t{2});
  gguf.Set("llama.rope.freq_base", 1e5f);
  gguf.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", ""});
  gguf.Set("tokenizer.ggml.scores", std::vector<float>{0.5f, 1, 2});
  gguf.AddTensor("norm", {3}, {1, 2, 3});
  const std::vector<std::byte> blocks(2 * RowBytes(DType::kQ4_1, 64));
  gguf.AddTensor("matrix", DType::kQ4_1, {2, 64}, blocks);
  return gguf;
}

TEST(Gguf, ReadsMetadataAndPlacesTensors) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufBuilder gguf = SmallModel(version);
    const std::string file = gguf.Build();
    const Result<GgufContents> contents = Parse(file);
    ASSERT_TRUE(contents.ok()) << contents.status().ToString();
    EXPECT_EQ(contents->version, version);
    EXPECT_EQ(*contents->metadata.GetString("general.architecture"), "llama");
    EXPECT_EQ(*contents->metadata.GetInt("llama.block_count"), 2);
    EXPECT_THAT(*contents->metadata.GetStringArray("tokenizer.ggml.tokens"),
                testing::ElementsAre("a", "b", ""));
    const TensorInfo& matrix = contents->tensors.at("matrix");
    EXPECT_EQ(matrix.shape, (Shape{2, 64}));
    EXPECT_EQ(matrix.dtype, DType::kQ4_1);
    EXPECT_EQ(matrix.offset, gguf.data_begin() + 32);
    EXPECT_EQ(matrix.bytes, 80u);
  }
}

TEST(Gguf, ReadsWhatTheOfficialWriterWrites) {
  const auto file = MappedFile::Open("tests/golden/weights/writer.gguf");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const Result<GgufContents> contents = ParseGguf(file->bytes());
  ASSERT_TRUE(contents.ok()) << contents.status().ToString();
  const Metadata& metadata = contents->metadata;
  EXPECT_EQ(*metadata.GetInt("u8"), 200);
  EXPECT_EQ(*metadata.GetInt("i8"), -100);
  EXPECT_EQ(*metadata.GetInt("u16"), 60000);
  EXPECT_EQ(*metadata.GetInt("i16"), -30000);
  EXPECT_EQ(*metadata.GetInt("u32"), 4000000000);
  EXPECT_EQ(*metadata.GetInt("i32"), -2000000000);
  EXPECT_EQ(*metadata.GetInt("u64"), int64_t{1} << 40);
  EXPECT_EQ(*metadata.GetInt("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(*metadata.GetFloat("f32"), 0.15625);
  EXPECT_EQ(*metadata.GetFloat("f64"), 1e-5);
  EXPECT_TRUE(*metadata.GetBool("yes"));
  EXPECT_EQ(*metadata.GetString("text"), "はやて");
  EXPECT_THAT(*metadata.GetStringArray("strings"), testing::ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*metadata.GetIntArray("ints"), testing::ElementsAre(1, -2, 3));
  EXPECT_THAT(*metadata.GetFloatArray("floats"), testing::ElementsAre(0.5, -1.5));
  EXPECT_EQ(contents->tensors.at("matrix").shape, (Shape{3, 4}));
  EXPECT_EQ(contents->tensors.at("halves").dtype, DType::kF16);
  EXPECT_EQ(contents->tensors.at("quants").shape, (Shape{2, 64}));
  const auto* values =
      reinterpret_cast<const float*>(file->bytes().data() + contents->tensors.at("matrix").offset);
  EXPECT_EQ(values[11], 11.0f);
}

TEST(Gguf, EveryTruncationIsAnErrorThatNamesAnOffset) {
  const GgufBuilder gguf = SmallModel();
  const std::string file = gguf.Build();
  // The last tensor's padding may be missing: 16 bytes.
  for (size_t length = 0; length < file.size() - 16; ++length) {
    const Result<GgufContents> contents = Parse(file.substr(0, length));
    ASSERT_FALSE(contents.ok()) << length;
    EXPECT_EQ(contents.status().code(), ErrorCode::kDataLoss);
    EXPECT_THAT(contents.status().message(), HasSubstr("offset "));
  }
}

TEST(Gguf, RandomDamageNeverCrashesAndAcceptedTensorsLieInsideTheFile) {
  const std::string intact = SmallModel().Build();
  Rng rng(5);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = intact;
    const int flips = rng.Between(1, 4);
    for (int i = 0; i < flips; ++i) {
      file[rng.Below(static_cast<uint32_t>(file.size()))] ^= static_cast<char>(1 << rng.Below(8));
    }
    const Result<GgufContents> contents = Parse(file);
    if (!contents.ok()) continue;
    ++accepted;
    for (const auto& [name, info] : contents->tensors) {
      ASSERT_LE(info.offset, file.size());
      ASSERT_LE(info.bytes, file.size() - info.offset);
      const TensorView view{nullptr, info.dtype, info.shape};
      ASSERT_EQ(static_cast<uint64_t>(view.num_bytes()), info.bytes) << name;
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(Gguf, ImpossibleCountsAreRefusedBeforeAnythingIsAllocated) {
  std::string file = SmallModel().Build();
  const uint64_t huge = ~uint64_t{0};
  std::string tensors = file, keys = file;
  tensors.replace(8, 8, reinterpret_cast<const char*>(&huge), 8);
  keys.replace(16, 8, reinterpret_cast<const char*>(&huge), 8);
  EXPECT_THAT(ErrorOf(tensors), HasSubstr("offset 8: 18446744073709551615 tensors cannot fit"));
  EXPECT_THAT(ErrorOf(keys), HasSubstr("offset 16: 18446744073709551615 metadata keys"));

  GgufBuilder array;
  std::string header(12, '\0');  // u8 items, 2^62 of them
  header[11] = 0x40;
  array.SetRaw("tokens", 9, header);
  EXPECT_THAT(ErrorOf(array.Build()), HasSubstr("metadata key 'tokens': offset"));
  EXPECT_THAT(ErrorOf(array.Build()), HasSubstr("does not fit in the file"));
}

TEST(Gguf, ArraysOfArraysArePassedOverUpToADepth) {
  const auto nested = [](int depth) {
    std::string value;
    for (int i = 0; i < depth; ++i) value += std::string("\x09\0\0\0\x01\0\0\0\0\0\0\0", 12);
    return value + std::string("\x00\0\0\0\x01\0\0\0\0\0\0\0\x07", 13);
  };
  GgufBuilder shallow, deep;
  shallow.SetRaw("nested", 9, nested(2));
  shallow.Set("after", uint8_t{9});
  const std::string file = shallow.Build();
  const Result<GgufContents> contents = Parse(file);
  ASSERT_TRUE(contents.ok()) << contents.status().ToString();
  EXPECT_EQ(*contents->metadata.GetInt("after"), 9);
  deep.SetRaw("nested", 9, nested(4000));
  EXPECT_THAT(ErrorOf(deep.Build()), HasSubstr("nested deeper than 4"));
}

TEST(Gguf, WrongHeadersAreNamed) {
  EXPECT_THAT(ErrorOf("GGML\3\0\0\0"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(ErrorOf(GgufBuilder(1).Build()), HasSubstr("unsupported: offset 4: GGUF version 1"));
  EXPECT_THAT(ErrorOf(GgufBuilder(3u << 24).Build()), HasSubstr("big-endian"));
  GgufBuilder twice, boolean, type, alignment;
  twice.Set("key", 1);
  twice.Set("key", 2);
  EXPECT_THAT(ErrorOf(twice.Build()), HasSubstr("metadata key 'key' appears twice"));
  boolean.SetRaw("flag", 7, "\x02");
  EXPECT_THAT(ErrorOf(boolean.Build()), HasSubstr("metadata key 'flag': offset"));
  type.SetRaw("what", 13, std::string(8, '\0'));
  EXPECT_THAT(ErrorOf(type.Build()), HasSubstr("unknown value type 13"));
  alignment.Set("general.alignment", uint32_t{48});
  EXPECT_THAT(ErrorOf(alignment.Build()), HasSubstr("general.alignment"));
}

struct BadTensor {
  const char* description;
  uint32_t type;
  std::vector<uint64_t> extents;
  uint64_t offset;
  const char* message;
};

TEST(Gguf, WrongTensorsAreNamedWithTheReason) {
  const uint64_t big = uint64_t{1} << 40;
  const BadTensor cases[] = {
      {"unknown type", 99, {32}, 0, "tensor type 99 (unknown) is not supported"},
      {"unsupported type", 16, {256}, 0, "tensor type 16 (IQ2_XXS) is not supported"},
      {"rank 0", 0, {}, 0, "rank 0"},
      {"rank 5", 0, {1, 1, 1, 1, 1}, 0, "rank 5"},
      {"overflow", 0, {big, big}, 0, "are too large"},
      {"negative", 0, {~uint64_t{0}}, 0, "are too large"},
      {"zero", 0, {0, 4}, 0, "an extent of zero"},
      {"half a block", 3, {48, 2}, 0, "not whole Q4_1 blocks"},
      {"too long", 0, {1000}, 0, "reach beyond the file"},
      {"enormous", 0, {big}, 0, "reach beyond the file"},
      {"far away", 0, {1}, big, "reach beyond the file"},
      {"wrap-around", 0, {16}, ~uint64_t{31}, "reach beyond the file"},
      {"misaligned", 0, {1}, 4, "not a multiple of 32"},
      {"overlap", 0, {1}, 0, "overlaps tensor 'good'"},
  };
  for (const BadTensor& bad : cases) {
    GgufBuilder gguf;
    gguf.AddTensor("good", {40}, std::vector<float>(40, 1.0f));
    gguf.AddRawTensor("zbad", bad.type, bad.extents, bad.offset);
    const std::string error = ErrorOf(gguf.Build());
    EXPECT_THAT(error, HasSubstr("zbad")) << bad.description;
    EXPECT_THAT(error, HasSubstr(bad.message)) << bad.description;
    EXPECT_TRUE(error.find("offset") != std::string::npos) << bad.description << error;
  }
  GgufBuilder twice;
  twice.AddTensor("t", {8}, std::vector<float>(8));
  twice.AddTensor("t", {8}, std::vector<float>(8));
  EXPECT_THAT(ErrorOf(twice.Build()), HasSubstr("tensor 't': offset"));
}

TEST(Gguf, TheAlignmentOfTheFileIsObeyed) {
  GgufBuilder gguf;
  gguf.SetAlignment(128);
  gguf.AddTensor("a", {1}, {1});
  gguf.AddTensor("b", {1}, {2});
  const std::string file = gguf.Build();
  const Result<GgufContents> contents = Parse(file);
  ASSERT_TRUE(contents.ok()) << contents.status().ToString();
  EXPECT_EQ(contents->tensors.at("a").offset % 128, 0u);
  EXPECT_EQ(contents->tensors.at("b").offset, contents->tensors.at("a").offset + 128);
}

}  // namespace
}  // namespace hayate::weights
