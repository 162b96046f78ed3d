// What `hayate inspect` says of models of true shape, against the sizes that their makers tell.

#include "models/model_outline.h"

#include <gtest/gtest.h>

#include "models/tensor_list.h"
#include "weights/describe.h"

namespace hayate::models {
namespace {

weights::Checkpoint OpenShape(const std::string& name) {
  auto checkpoint = weights::Checkpoint::OpenConfig("bench/models/" + name).value();
  EXPECT_TRUE(checkpoint.AddDummyTensors(ListTensors(checkpoint, DType::kBF16).value(), 1).ok());
  return checkpoint;
}

CacheUse UseOf(const ModelOutline& outline, DType dtype) {
  for (const CacheUse& use : outline.caches) {
    if (use.dtype == dtype) return use;
  }
  ADD_FAILURE() << Info(dtype).name;
  return {};
}

struct Published {
  const char* name;
  DType dtype;
  int64_t bytes_per_token;
  double full_attention_factor;
  double billion_parameters;
};

class Outline : public ::testing::TestWithParam<Published> {};

TEST_P(Outline, HasThePublishedSize) {
  const weights::Checkpoint checkpoint = OpenShape(GetParam().name);
  const ModelOutline outline = ReadOutline(checkpoint).value();
  const CacheUse use = UseOf(outline, GetParam().dtype);
  EXPECT_EQ(use.bytes_per_token, GetParam().bytes_per_token);
  EXPECT_NEAR(static_cast<double>(use.full_attention_bytes_per_token) /
                  static_cast<double>(use.bytes_per_token),
              GetParam().full_attention_factor, 0.05);
  const auto parameters =
      static_cast<double>(weights::Describe(checkpoint).value().num_parameters) / 1e9;
  EXPECT_NEAR(parameters, GetParam().billion_parameters, 0.02 * GetParam().billion_parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Outline,
    ::testing::Values(Published{"deepseek-v4-flash", DType::kF8E4M3, 3514, 7.15, 291},
                      Published{"deepseek-v4-pro", DType::kF8E4M3, 5031, 7.08, 1600},
                      Published{"deepseek-v4.1-flash", DType::kF8E4M3, 890, 23.7, 765},
                      Published{"gpt-oss-20b", DType::kF16, 24576, 2.0, 20.9},
                      Published{"qwen3-30b-a3b", DType::kF16, 98304, 1.0, 30.5},
                      Published{"llama-3.1-8b", DType::kF16, 131072, 1.0, 8.03}),
    [](const auto& test) {
      std::string name = test.param.name;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST(ModelOutline, LeavesOutACacheThatTheModelCannotHave) {
  const auto checkpoint = weights::Checkpoint::Open("tests/golden/deepseek_v4/ratio_32").value();
  const ModelOutline outline = ReadOutline(checkpoint).value();
  for (const CacheUse& use : outline.caches) {
    EXPECT_NE(use.dtype, DType::kF8E4M3);
  }
}

}  // namespace
}  // namespace hayate::models
