#include "bench/op_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace hayate::bench {
namespace {

using ::testing::HasSubstr;

constexpr Roofline kRoofline{.read_gb_per_s = 10.0,
                             .fp32_gflop_per_s = 100.0,
                             .bf16_gflop_per_s = 200.0,
                             .int8_gop_per_s = 400.0};

TEST(OpTiming, TheSlowerOfMemoryAndArithmeticBounds) {
  // 1 GB takes 0.1 s; 20 Gop take 0.2 s in fp32 and 0.05 s in int8.
  OpCase op{.cold_bytes = 1e9, .flop = 20e9, .arithmetic = OpArithmetic::kFp32};
  EXPECT_DOUBLE_EQ(BestTime(op, kRoofline).seconds, 0.2);
  EXPECT_EQ(BestTime(op, kRoofline).bound, OpResult::Bound::kCompute);
  op.arithmetic = OpArithmetic::kInt8;
  EXPECT_DOUBLE_EQ(BestTime(op, kRoofline).seconds, 0.1);
  EXPECT_EQ(BestTime(op, kRoofline).bound, OpResult::Bound::kMemory);
  EXPECT_EQ(BestTime(op, Roofline{}).seconds, 0.0);
}

TEST(OpTiming, NamesAreDistinctAndFilterPicksByPart) {
  const auto all = AllOpSpecs();
  std::set<std::string> names;
  for (const OpSpec& spec : all) names.insert(spec.name);
  EXPECT_EQ(names.size(), all.size());
  const auto some = FilterOpSpecs(all, "Q4_1/down");
  ASSERT_FALSE(some.empty());
  for (const OpSpec& spec : some) EXPECT_THAT(spec.name, HasSubstr("Q4_1/down"));
  EXPECT_EQ(FilterOpSpecs(all, "").size(), all.size());
  EXPECT_TRUE(FilterOpSpecs(all, "no such operator").empty());
}

TEST(OpTiming, TimesWhatItIsGiven) {
  int calls = 0;
  const OpSpec spec{"op", [&calls] {
                      return OpCase{.run = [&calls] { ++calls; }, .cold_bytes = 1.0, .flop = 1.0};
                    }};
  const OpResult result = TimeOp(spec, kRoofline, {.rounds = 3, .round_s = 1e-5});
  EXPECT_GE(calls, 4);  // one to warm up
  EXPECT_GT(result.us, 0.0);
  ASSERT_TRUE(result.roofline_share);
  EXPECT_THAT(RenderOpLine(result), HasSubstr("%"));
  EXPECT_THAT(ToJson(kRoofline, "cpu", {&result, 1}), HasSubstr("\"roofline_share\""));
}

// The operators that share their loops with these are tested at other shapes in ops; here it
// matters that operands fit together.
TEST(OpTiming, SmallCasesRun) {
  for (const char* filter : {"rms_norm[576]/T8", "rope[9+3,64]/T8", "swiglu[1536]/T8", "sample["}) {
    for (const OpSpec& spec : FilterOpSpecs(AllOpSpecs(), filter)) {
      const OpResult result = TimeOp(spec, kRoofline, {.rounds = 1, .round_s = 1e-5});
      EXPECT_GT(result.us, 0.0) << spec.name;
      EXPECT_FALSE(result.roofline_share) << "reads nothing from memory";
    }
  }
}

}  // namespace
}  // namespace hayate::bench
