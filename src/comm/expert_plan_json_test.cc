#include "comm/expert_plan_json.h"

#include <gtest/gtest.h>

#include <string>

namespace hayate::comm {
namespace {

std::string MessageOf(std::string_view json) {
  ExpertPlan plan;
  const Status status = ReadExpertPlan(json, plan);
  EXPECT_EQ(status.code(), ErrorCode::kDataLoss) << json;
  return status.message();
}

TEST(ExpertPlanJson, CountsThatWereWrittenReadBack) {
  const std::vector<int64_t> counts = {0, 3, 9'000'000'000, 4, 5, 6};
  ExpertPlan plan{.num_ranks = 2};
  ASSERT_TRUE(ReadExpertPlan(WriteExpertCounts(counts, 3), plan).ok());
  EXPECT_EQ(plan.logical_count,
            (std::vector<std::vector<int64_t>>{{0, 3, 9'000'000'000}, {4, 5, 6}}));
  EXPECT_TRUE(plan.physical_to_logical.empty());
  EXPECT_EQ(plan.num_ranks, 2);
}

TEST(ExpertPlanJson, AMapGoesBeforeCounts) {
  ExpertPlan plan;
  ASSERT_TRUE(
      ReadExpertPlan(R"({"logical_count": [[1]], "physical_to_logical_map": [[], [1, 0]]})", plan)
          .ok());
  EXPECT_EQ(plan.physical_to_logical, (std::vector<std::vector<int32_t>>{{}, {1, 0}}));
  EXPECT_TRUE(plan.logical_count.empty());
}

TEST(ExpertPlanJson, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_NE(MessageOf("[1]").find("no JSON object"), std::string::npos);
  EXPECT_NE(MessageOf("{\"logical_count\": [[").find("no JSON object"), std::string::npos);
  EXPECT_NE(MessageOf("{}").find("logical_count"), std::string::npos);
  EXPECT_NE(MessageOf(R"({"logical_count": 3})").find("no array of layers"), std::string::npos);
  EXPECT_NE(MessageOf(R"({"logical_count": []})").find("no layers"), std::string::npos);
  EXPECT_NE(MessageOf(R"({"logical_count": [[1], 2]})").find("logical_count[1]"),
            std::string::npos);
  for (const char* bad : {"-1", "1.5", "\"1\"", "null", "1e30", "99999999999999999999"}) {
    const std::string json = std::string(R"({"logical_count": [[1, 2], [3, )") + bad + "]]}";
    EXPECT_FALSE(MessageOf(json).empty());
  }
  EXPECT_NE(MessageOf(R"({"physical_to_logical_map": [[0, 70000]]})").find("[0][1]"),
            std::string::npos);
  std::string many = R"({"logical_count": [)";
  for (int i = 0; i <= kMaxPlanLayers; ++i) many += i == 0 ? "[]" : ",[]";
  EXPECT_NE(MessageOf(many + "]}").find("more than 4096 layers"), std::string::npos);
}

}  // namespace
}  // namespace hayate::comm
