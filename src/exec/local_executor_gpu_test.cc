// The executor on a GPU: faults, and weights that are replaced where they lie.

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "exec/local_executor.h"
#include "models/testing/edited_checkpoint.h"

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

  // 40 tokens after the prompt, greedily.
  std::vector<TokenId> Answer(LocalExecutor& executor) {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < 40; ++i) {
      StepPlan plan = Prompt(num_steps_++, 1);
      if (i > 0) {
        plan = {.step = plan.step};
        plan.tokens = {tokens.back()};
        plan.rows.push_back({.slot = {0}, .begin = 7 + i, .end = 8 + i, .samples = true});
        plan.num_tokens = 1;
      }
      executor.Submit(plan);
      const StepResult& result = executor.WaitOldest();
      CHECK(result.status.ok()) << result.status.message();
      tokens.push_back(result.rows.at(0).tokens.at(0));
    }
    return tokens;
  }
  static std::filesystem::path Folder(const std::string& name) {
    return std::filesystem::path(::testing::TempDir()) / ("local_executor_gpu_" + name);
  }
  // The same tensors, the values of each in another order.
  static weights::Checkpoint Mixed(const std::string& name) {
    models::testing::EditedCheckpoint mixed("tests/golden/dense/llama", Folder(name));
    for (auto& [tensor_name, tensor] : mixed.tensors) {
      const auto half = static_cast<ptrdiff_t>(tensor.bytes.size() / 4 * 2);  // two-byte values
      std::rotate(tensor.bytes.begin(), tensor.bytes.begin() + half, tensor.bytes.end());
    }
    return mixed.Open();
  }

  const weights::Checkpoint checkpoint_ =
      weights::Checkpoint::Open("tests/golden/dense/llama").value();
  uint64_t num_steps_ = 0;
  size_t free_bytes_ = 0;
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

// What a server answers with its new weights is what one that began with them does, in steps that
// run and in steps that were captured.
TEST_F(LocalExecutorGpu, WeightsThatTakeThePlaceOfTheOldOnesComputeTheSame) {
  const weights::Checkpoint mixed = Mixed("same");
  for (const auto& [precision, kv_dtype] : {std::pair(ops::MatmulPrecision::kFast, DType::kBF16),
                                            std::pair(ops::MatmulPrecision::kFp8, DType::kBF16),
                                            std::pair(ops::MatmulPrecision::kExact, DType::kF32)}) {
    ExecutorOptions options = Options();
    options.precision = precision;
    options.kv_dtype = kv_dtype;
    const auto first = LocalExecutor::Create(checkpoint_, options).value();
    const std::vector<TokenId> of_first = Answer(*first);
    const auto second = LocalExecutor::Create(mixed, options).value();
    const std::vector<TokenId> of_second = Answer(*second);
    ASSERT_NE(of_first, of_second);
    ASSERT_TRUE(first->ReplaceWeights(mixed).ok());
    EXPECT_EQ(Answer(*first), of_second);
    // The steps of the answer before left time to capture.
    EXPECT_EQ(Answer(*first), of_second);
    ASSERT_TRUE(first->ReplaceWeights(checkpoint_).ok());
    EXPECT_EQ(Answer(*first), of_first);
    const auto narrower = weights::Checkpoint::Open("tests/golden/dense/llama_head_dim_24").value();
    EXPECT_EQ(first->ReplaceWeights(narrower).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(Answer(*first), of_first);
  }
}

TEST_F(LocalExecutorGpu, WeightsThatCannotServeAreReplacedByTheOldOnes) {
  models::testing::EditedCheckpoint ends("tests/golden/dense/llama", Folder("ends"));
  ends.config["eos_token_id"] = 5;
  ends.Edit("norm.weight",
            [](std::byte* data, size_t bytes) { std::fill_n(data, bytes, std::byte{0}); });
  const auto executor = LocalExecutor::Create(checkpoint_, Options()).value();
  const std::vector<TokenId> before = Answer(*executor);
  const Status refused = executor->ReplaceWeights(ends.Open());
  EXPECT_NE(refused.message().find("end tokens"), std::string::npos) << refused.message();
  EXPECT_EQ(Answer(*executor), before);
}

TEST_F(LocalExecutorGpu, WeightsThatChangeAgainAndAgainTakeNoMoreMemory) {
  const weights::Checkpoint mixed = Mixed("often");
  const auto executor = LocalExecutor::Create(checkpoint_, Options()).value();
  // With the graphs that are captured meanwhile.
  const auto replace = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      ASSERT_TRUE(executor->ReplaceWeights(i % 2 == 0 ? mixed : checkpoint_).ok());
      Answer(*executor);
    }
    size_t free = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    free_bytes_ = free;
  };
  replace(4);
  const size_t before = free_bytes_;
  replace(60);
  constexpr size_t kNoise = 4 << 20;  // what the driver takes at a time is 2 MiB
  EXPECT_GE(free_bytes_ + kNoise, before);
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
