#include "obs/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hayate::obs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StepTrace, PutsEngineAndDeviceOnOneAxis) {
  const StepRecord steps[] = {{.step = 7,
                               .start_ns = 1'000'000,
                               .plan_ns = 2'000,
                               .wait_start_ns = 1'003'000,
                               .wait_ns = 10'000,
                               .device_start_ns = 1'002'500,
                               .forward_ns = 9'500,
                               .commit_ns = 1'000,
                               .num_rows = 3}};
  const std::string json = StepTraceJson(steps);
  EXPECT_THAT(json, HasSubstr(R"("name":"plan","ts":0,"dur":2,"args":{"step":7,"rows":3,)"));
  EXPECT_THAT(json, HasSubstr(R"("name":"wait","ts":3,"dur":10,)"));
  EXPECT_THAT(json, HasSubstr(R"("tid":2,"name":"forward","ts":2.5,"dur":9.5,)"));
  EXPECT_THAT(json, HasSubstr(R"("name":"commit","ts":13,"dur":1,)"));
  EXPECT_THAT(json, HasSubstr(R"("displayTimeUnit":"ms")"));
}

TEST(StepTrace, LeavesOutWhatNobodyMeasured) {
  EXPECT_THAT(StepTraceJson({}), HasSubstr("traceEvents"));
  const StepRecord steps[] = {{.start_ns = 5}};
  EXPECT_THAT(StepTraceJson(steps), Not(HasSubstr("forward")));
}

}  // namespace
}  // namespace hayate::obs
