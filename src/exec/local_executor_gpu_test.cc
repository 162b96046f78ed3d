// Faults of a GPU through the executor.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/check.h"
#include "exec/local_executor.h"

namespace hayate::exec {
namespace {

constexpr int32_t kPageTokens = 64;

class LocalExecutorGpu : public ::testing::Test {
 protected:
  static ExecutorOptions Options() {
    return {.device = DeviceKind::kCuda,
            .memory_fraction = 0.05,
            .max_graph_rows = 4,
            .kv_dtype = DType::kBF16,
            .page_tokens = kPageTokens,
            .max_running = 4,
            .max_step_tokens = 64,
            .max_step_logits = 8,
            .total_tokens = 8 * kPageTokens};
  }
  // A prompt of 8 tokens in slot 0, whose keys and values go to `page`.
  static StepPlan Prompt(uint64_t step, int32_t page) {
    StepPlan plan{.step = step};
    SamplingParams greedy;
    greedy.temperature = 0.0f;
    plan.starts.push_back({.slot = {0}, .sampling = greedy, .prompt_length = 8});
    plan.page_updates.push_back({{0}, 0, 0, {page}});
    plan.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
    plan.rows.push_back({.slot = {0}, .begin = 0, .end = 8, .first_token = 0, .samples = true});
    plan.num_tokens = 8;
    return plan;
  }

  const weights::Checkpoint checkpoint_ =
      weights::Checkpoint::Open("tests/golden/dense/llama").value();
};

TEST_F(LocalExecutorGpu, APoolThatDoesNotFitSaysWhatToDo) {
  ExecutorOptions options = Options();
  options.total_tokens = int64_t{1} << 36;
  const auto executor = LocalExecutor::Create(checkpoint_, options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(executor.status().message().find("--max-total-tokens"), std::string::npos)
      << executor.status().message();
}

// The device is broken for the process that does this.
class LocalExecutorGpuDeathTest : public LocalExecutorGpu {
 protected:
  [[noreturn]] void FailAStep() const {
    auto created = LocalExecutor::Create(checkpoint_, Options());
    CHECK(created.ok()) << created.status().message();
    LocalExecutor& executor = **created;
    executor.Submit(Prompt(0, 1));
    const StepResult& good = executor.WaitOldest();
    CHECK(good.status.ok()) << good.status.message();
    CHECK_EQ(good.rows.at(0).tokens.size(), 1u);

    // A page beyond the pool and all memory of the device.
    executor.Submit(Prompt(1, 1 << 30));
    executor.Submit(Prompt(2, 1));
    for (int step = 1; step <= 2; ++step) {
      const StepResult& failed = executor.WaitOldest();
      CHECK(!failed.status.ok()) << "step " << step;
      fmt::print(stderr, "step {}: {}\n", step, failed.status.message());
    }
    std::_Exit(0);
  }
};

TEST_F(LocalExecutorGpuDeathTest, AStepThatTheDeviceCannotCarryOutFailsItAndAllAfter) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FailAStep(), ::testing::ExitedWithCode(0), "step 1: .*cuda.*step 2: .*cuda");
}

}  // namespace
}  // namespace hayate::exec
