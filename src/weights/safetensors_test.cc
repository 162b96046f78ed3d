#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "tensor/tensor_view.h"
#include "weights/testing/safetensors_builder.h"

namespace hayate::weights {
namespace {

using ::testing::HasSubstr;

Result<TensorIndex> Parse(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file)));
}

std::string ErrorOf(std::string_view header, std::string_view data) {
  const Result<TensorIndex> tensors = Parse(SafetensorsBytes(header, data));
  return tensors.ok() ? "no error" : tensors.status().ToString();
}

TEST(Safetensors, ReadsWhatTheOfficialLibraryWrites) {
  const auto file = MappedFile::Open("tests/golden/weights/writer.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const Result<TensorIndex> tensors = ParseSafetensors(file->bytes());
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_EQ(tensors->size(), 6u);
  EXPECT_EQ(tensors->at("matrix").shape, (Shape{3, 4}));
  EXPECT_EQ(tensors->at("halves").dtype, DType::kF16);
  EXPECT_EQ(tensors->at("ids").dtype, DType::kI64);
  EXPECT_EQ(tensors->at("flags").dtype, DType::kBool);
  EXPECT_EQ(tensors->at("scalar").shape, Shape{1});
  EXPECT_EQ(tensors->at("empty").bytes, 0u);
  const auto* ids =
      reinterpret_cast<const int64_t*>(file->bytes().data() + tensors->at("ids").offset);
  EXPECT_EQ(ids[0], int64_t{1} << 40);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  SafetensorsBuilder builder;
  builder.AddTensor("a", {2, 3}, {1, 2, 3, 4, 5, 6});
  builder.AddTensor("b", {1}, {7});
  const std::string file = builder.Build();
  ASSERT_TRUE(Parse(file).ok());
  for (size_t length = 0; length < file.size(); ++length) {
    const Result<TensorIndex> tensors = Parse(file.substr(0, length));
    ASSERT_FALSE(tensors.ok()) << length;
    EXPECT_THAT(tensors.status().message(), HasSubstr("offset"));
  }
  EXPECT_FALSE(Parse(file + "x").ok());
}

TEST(Safetensors, RandomDamageNeverCrashesAndAcceptedTensorsLieInsideTheFile) {
  SafetensorsBuilder builder;
  builder.AddTensor("a", {2, 3}, {1, 2, 3, 4, 5, 6});
  builder.AddTensor("b", DType::kBF16, {4}, std::vector<std::byte>(8));
  const std::string intact = builder.Build();
  Rng rng(6);
  for (int round = 0; round < 20'000; ++round) {
    std::string file = intact;
    const int flips = rng.Between(1, 3);
    for (int i = 0; i < flips; ++i) {
      file[rng.Below(static_cast<uint32_t>(file.size()))] ^= static_cast<char>(1 << rng.Below(8));
    }
    const Result<TensorIndex> tensors = Parse(file);
    if (!tensors.ok()) continue;
    for (const auto& [name, info] : *tensors) {
      ASSERT_LE(info.offset, file.size());
      ASSERT_LE(info.bytes, file.size() - info.offset) << name;
    }
  }
}

TEST(Safetensors, OffsetsMustCoverTheDataExactly) {
  const auto entry = [](const char* name, const char* offsets) {
    return std::string("\"") + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets +
           "}";
  };
  const auto file = [&](const std::string& a, const std::string& b) {
    return "{" + a + "," + b + "}";
  };
  const std::string data(8, '\0');
  EXPECT_EQ(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[4,8]")), data), "no error");
  EXPECT_EQ(ErrorOf(file(entry("a", "[4,8]"), entry("b", "[0,4]")), data), "no error");
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[2,6]")), data), HasSubstr("overlaps"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[0,4]")), data), HasSubstr("overlaps"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[8,12]")), data + data),
              HasSubstr("16 bytes of data, but the tensors take 8"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[8,12]")), data),
              HasSubstr("tensor 'b': data_offsets [8, 12] lie outside"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[8,4]")), data),
              HasSubstr("tensor 'b'"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("b", "[-4,0]")), data),
              HasSubstr("tensor 'b'"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[0,4]"), entry("a", "[4,8]")), data), HasSubstr("twice"));
}

struct BadEntry {
  const char* entry;
  const char* message;
};

TEST(Safetensors, WrongEntriesAreNamedWithTheReason) {
  const BadEntry cases[] = {
      {R"(7)", "not an object"},
      {R"({"shape":[1],"data_offsets":[0,4]})", "'dtype' is missing"},
      {R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})", "dtype F64 is not supported"},
      {R"({"dtype":"Q4_1","shape":[32],"data_offsets":[0,20]})", "dtype Q4_1 is not supported"},
      {R"({"dtype":"F32","data_offsets":[0,4]})", "'shape' is missing"},
      {R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "non-negative"},
      {R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", "non-negative"},
      {R"({"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]})", "rank above 4"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})", "too large"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "4 bytes, but F32 [2] takes 8"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", "two non-negative integers"},
      {R"({"dtype":"F32","shape":[1]})", "two non-negative integers"},
  };
  for (const BadEntry& bad : cases) {
    const std::string error = ErrorOf(std::string("{\"w\":") + bad.entry + "}", "0123");
    EXPECT_THAT(error, HasSubstr("tensor 'w'")) << bad.entry;
    EXPECT_THAT(error, HasSubstr(bad.message)) << bad.entry;
  }
}

TEST(Safetensors, HostileHeadersAreRefused) {
  std::string enormous(8, '\xFF');
  EXPECT_THAT(Parse(enormous).status().message(), HasSubstr("at most 100000000 are read"));
  EXPECT_THAT(ErrorOf("[]", ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("{\"a\":", ""), HasSubstr("offset 8: header"));
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_THAT(ErrorOf(deep, ""), HasSubstr("header"));
  EXPECT_EQ(ErrorOf("{}", ""), "no error");
}

TEST(SafetensorsIndex, MapsTensorsToPlainFileNamesOnly) {
  const auto index = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":8},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_EQ(index->at("b"), "m-2.safetensors");
  for (const char* name : {"../m.safetensors", "/etc/m.safetensors", "a/m.safetensors", "m.bin",
                           "..\\\\m.safetensors", ".safetensors", "m\\u0000.safetensors", ""}) {
    const auto bad =
        ParseSafetensorsIndex(std::string(R"({"weight_map":{"w":")") + name + R"("}})");
    ASSERT_FALSE(bad.ok()) << name;
    EXPECT_THAT(bad.status().message(), HasSubstr("tensor 'w'"));
  }
  EXPECT_FALSE(ParseSafetensorsIndex(R"({"weight_map":{"w":3}})").ok());
  EXPECT_FALSE(ParseSafetensorsIndex(R"({"weight_map":["w"]})").ok());
  EXPECT_FALSE(ParseSafetensorsIndex(R"({})").ok());
  EXPECT_FALSE(ParseSafetensorsIndex("").ok());
  EXPECT_THAT(ParseSafetensorsIndex(R"({"weight_map":{"w":"a.safetensors","w":"b.safetensors"}})")
                  .status()
                  .message(),
              HasSubstr("listed twice"));
}

}  // namespace
}  // namespace hayate::weights
