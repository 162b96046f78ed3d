// The workers over a tiny checkpoint, against what transformers computed for it
// (tests/golden/dense).

#include "exec/local_executor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "models/tensor_list.h"
#include "models/testing/edited_checkpoint.h"

namespace hayate::exec {
namespace {

constexpr const char* kGolden = "tests/golden/dense/llama";
constexpr int32_t kPageTokens = 16;
constexpr int32_t kSlotPages = 5;

template <typename T>
std::vector<T> Values(const weights::Checkpoint& file, const char* name) {
  const ConstTensorView tensor = file.Tensor(name).value();
  const T* values = reinterpret_cast<const T*>(tensor.data);
  return std::vector<T>(values, values + tensor.shape.num_elements());
}

ExecutorOptions Options(int num_ranks) {
  return {.num_ranks = num_ranks,
          .precision = ops::MatmulPrecision::kExact,
          .kv_dtype = DType::kF32,
          .page_tokens = kPageTokens,
          .max_running = 4,
          .max_step_tokens = 64,
          .max_step_logits = 12,
          .total_tokens = 4 * kSlotPages * kPageTokens};
}

class LocalExecutorOverRanks : public ::testing::TestWithParam<int> {
 protected:
  LocalExecutorOverRanks() {
    const auto expected =
        weights::Checkpoint::Open(std::string(kGolden) + "/expected.safetensors").value();
    prompt_ = Values<int32_t>(expected, "input_ids");
    greedy_ = Values<int32_t>(expected, "greedy");
    logits_ = Values<float>(expected, "logits");
    executor_ = LocalExecutor::Create(checkpoint_, Options(GetParam())).value();
  }

  StepPlan NextPlan() { return {.step = next_step_++}; }
  static void Start(StepPlan& plan, int32_t slot, int32_t prompt_length) {
    SamplingParams greedy;
    greedy.temperature = 0.0f;
    plan.starts.push_back({.slot = {slot}, .sampling = greedy, .prompt_length = prompt_length});
    for (int32_t i = 0; i < kSlotPages; ++i) {
      plan.page_updates.push_back({{slot}, 0, i, {1 + slot * kSlotPages + i}});
    }
  }
  // Positions [begin, begin + tokens) of the slot.
  static void AddRow(StepPlan& plan, int32_t slot, int32_t begin, std::vector<TokenId> tokens,
                     bool samples) {
    StepRow row{.slot = {slot}, .begin = begin, .samples = samples};
    row.end = begin + static_cast<int32_t>(tokens.size());
    row.first_token = static_cast<int32_t>(plan.tokens.size());
    plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
    plan.rows.push_back(row);
    plan.num_tokens += row.num_tokens();
  }
  static void AddLateRow(StepPlan& plan, int32_t slot, int32_t position) {
    plan.rows.push_back({.slot = {slot},
                         .begin = position,
                         .end = position + 1,
                         .first_token = kLateToken,
                         .samples = true});
    ++plan.num_tokens;
  }
  TokenId RunOne(const StepPlan& plan) {
    executor_->Submit(plan);
    const StepResult result = executor_->WaitOldest();
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_EQ(result.step, plan.step);
    return result.rows.at(0).tokens.at(0);
  }
  // Greedy, as long as the reference's.
  std::vector<TokenId> Answer() {
    StepPlan plan = NextPlan();
    Start(plan, 0, prompt_length());
    AddRow(plan, 0, 0, prompt_, true);
    std::vector<TokenId> tokens = {RunOne(plan)};
    while (tokens.size() < greedy_.size()) {
      plan = NextPlan();
      AddRow(plan, 0, prompt_length() + static_cast<int32_t>(tokens.size()) - 1, {tokens.back()},
             true);
      tokens.push_back(RunOne(plan));
    }
    return tokens;
  }
  std::vector<TokenId> Golden() const { return {greedy_.begin(), greedy_.end()}; }
  // The same tensors, the values of each in another order.
  static weights::Checkpoint Mixed() {
    const auto folder =
        std::filesystem::path(::testing::TempDir()) / ("mixed_" + std::to_string(::getpid()));
    models::testing::EditedCheckpoint mixed(kGolden, folder);
    for (auto& [name, tensor] : mixed.tensors) {
      const auto half = static_cast<ptrdiff_t>(tensor.bytes.size() / 4 * 2);  // two-byte values
      std::rotate(tensor.bytes.begin(), tensor.bytes.begin() + half, tensor.bytes.end());
    }
    return mixed.Open();
  }
  int32_t prompt_length() const { return static_cast<int32_t>(prompt_.size()); }

  const weights::Checkpoint checkpoint_ = weights::Checkpoint::Open(kGolden).value();
  std::vector<int32_t> prompt_, greedy_;
  std::vector<float> logits_;  // [prompt, V]
  std::unique_ptr<LocalExecutor> executor_;
  uint64_t next_step_ = 0;
};

TEST_P(LocalExecutorOverRanks, StepsOneByOneGiveTheReferenceAnswer) {
  StepPlan plan = NextPlan();
  Start(plan, 1, prompt_length());
  AddRow(plan, 1, 0, prompt_, true);
  TokenId token = RunOne(plan);
  for (size_t i = 0; i < greedy_.size(); ++i) {
    ASSERT_EQ(token, greedy_[i]) << i;
    plan = NextPlan();
    AddRow(plan, 1, prompt_length() + static_cast<int32_t>(i), {token}, true);
    token = RunOne(plan);
  }
}

TEST_P(LocalExecutorOverRanks, LateTokensOfTwoStepsInFlightGiveTheSameAnswer) {
  // Slot 0 decodes while slot 3 still reads its prompt in chunks; then both decode.
  StepPlan plan = NextPlan();
  Start(plan, 0, prompt_length());
  AddRow(plan, 0, 0, prompt_, true);
  executor_->Submit(plan);
  const std::vector<int32_t> first_half(prompt_.begin(), prompt_.begin() + 7);
  const std::vector<int32_t> second_half(prompt_.begin() + 7, prompt_.end());
  std::vector<TokenId> slot0, slot3;
  const auto num_tokens = static_cast<int32_t>(greedy_.size());
  for (int32_t step = 0; step < num_tokens + 1; ++step) {
    plan = NextPlan();
    AddLateRow(plan, 0, prompt_length() + step);
    if (step == 0) {
      Start(plan, 3, prompt_length());
      AddRow(plan, 3, 0, first_half, false);
    } else if (step == 1) {
      AddRow(plan, 3, 7, second_half, true);
    } else {
      AddLateRow(plan, 3, prompt_length() + step - 2);
    }
    executor_->Submit(plan);
    const StepResult result = executor_->WaitOldest();
    for (const RowResult& row : result.rows) {
      auto& tokens = row.slot.value == 0 ? slot0 : slot3;
      tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
    }
  }
  const StepResult last = executor_->WaitOldest();
  ASSERT_EQ(last.rows.size(), 2u);
  slot3.insert(slot3.end(), last.rows[1].tokens.begin(), last.rows[1].tokens.end());
  EXPECT_EQ(slot3, greedy_);
  ASSERT_EQ(slot0.size(), greedy_.size() + 1);
  slot0.pop_back();
  EXPECT_EQ(slot0, greedy_);
}

TEST_P(LocalExecutorOverRanks, ScoresPromptPositionsAsTheReferenceDoes) {
  StepPlan plan = NextPlan();
  Start(plan, 2, prompt_length());
  AddRow(plan, 2, 0, prompt_, true);
  plan.rows[0].score_begin = 3;
  plan.rows[0].num_scored = 6;
  executor_->Submit(plan);
  const StepResult result = executor_->WaitOldest();
  const auto& scored = result.rows.at(0).prompt_logprobs;
  ASSERT_EQ(scored.size(), 6u);
  const size_t vocab = logits_.size() / prompt_.size();
  for (size_t i = 0; i < scored.size(); ++i) {
    const float* row = logits_.data() + (3 + i) * vocab;
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{row[v]});
    const int32_t target = prompt_[4 + i];
    EXPECT_EQ(scored[i].token, target);
    // The logits themselves are within 1e-4 of the reference.
    EXPECT_NEAR(scored[i].logprob, row[target] - std::log(sum), 2e-4);
  }
  EXPECT_EQ(result.rows[0].tokens, std::vector<TokenId>{greedy_[0]});
}

TEST_P(LocalExecutorOverRanks, CopiedPagesServeAsThePrefixOfAnotherSlot) {
  // The prompt's first page is computed by slot 0, copied, and read by slot 1.
  ASSERT_GT(prompt_length(), kPageTokens);
  StepPlan plan = NextPlan();
  Start(plan, 0, prompt_length());
  AddRow(plan, 0, 0, prompt_, true);
  executor_->Submit(plan);
  plan = NextPlan();
  Start(plan, 1, prompt_length());
  plan.copies.push_back({.group = 0, .from = {1}, .to = {1 + kSlotPages}});
  AddRow(plan, 1, kPageTokens, {prompt_.begin() + kPageTokens, prompt_.end()}, true);
  executor_->Submit(plan);
  EXPECT_EQ(executor_->WaitOldest().rows[0].tokens, std::vector<TokenId>{greedy_[0]});
  EXPECT_EQ(executor_->WaitOldest().rows[0].tokens, std::vector<TokenId>{greedy_[0]});
}

TEST_P(LocalExecutorOverRanks, EndsWithStepsInFlight) {
  StepPlan plan = NextPlan();
  Start(plan, 0, prompt_length());
  AddRow(plan, 0, 0, prompt_, true);
  executor_->Submit(plan);
  plan = NextPlan();
  AddLateRow(plan, 0, prompt_length());
  executor_->Submit(plan);
  executor_.reset();
}

TEST_P(LocalExecutorOverRanks, ComputesWithTheWeightsThatReplaceTheOldOnes) {
  auto dummy = weights::Checkpoint::OpenConfig(kGolden).value();
  auto tensors = models::ListTensors(dummy, DType::kF32).value();
  ASSERT_TRUE(dummy.AddDummyTensors(std::move(tensors), 7).ok());
  EXPECT_EQ(Answer(), Golden());
  ASSERT_TRUE(executor_->ReplaceWeights(dummy).ok());
  const std::vector<TokenId> other = Answer();
  EXPECT_NE(other, Golden());
  // What does not fit leaves them in place, whichever rank found it out.
  const auto narrower =
      weights::Checkpoint::Open(std::string(kGolden) + "/../llama_head_dim_24").value();
  EXPECT_FALSE(executor_->ReplaceWeights(narrower).ok());
  const auto no_weights =
      weights::Checkpoint::Open(std::string(kGolden) + "/expected.safetensors").value();
  EXPECT_FALSE(executor_->ReplaceWeights(no_weights).ok());
  EXPECT_EQ(Answer(), other);
  ASSERT_TRUE(executor_->ReplaceWeights(checkpoint_).ok());
  EXPECT_EQ(Answer(), Golden());
}

TEST_P(LocalExecutorOverRanks, WeightsThatTakeThePlaceOfTheOldOnesComputeTheSame) {
  ExecutorOptions options = Options(GetParam());
  const weights::Checkpoint mixed = Mixed();
  executor_ = LocalExecutor::Create(mixed, options).value();
  const std::vector<TokenId> of_mixed = Answer();
  ASSERT_NE(of_mixed, Golden());

  options.replace_in_place = true;
  executor_ = LocalExecutor::Create(checkpoint_, options).value();
  EXPECT_EQ(Answer(), Golden());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(executor_->ReplaceWeights(mixed).ok());
    EXPECT_EQ(Answer(), of_mixed);
    ASSERT_TRUE(executor_->ReplaceWeights(checkpoint_).ok());
    EXPECT_EQ(Answer(), Golden());
  }
}

TEST_P(LocalExecutorOverRanks, AReplacementInPlaceThatDoesNotFitLeavesTheOldWeights) {
  ExecutorOptions options = Options(GetParam());
  options.replace_in_place = true;
  executor_ = LocalExecutor::Create(checkpoint_, options).value();
  const auto replace = [&](const weights::Checkpoint& wanted) {
    const Status status = executor_->ReplaceWeights(wanted);
    EXPECT_EQ(Answer(), Golden()) << status.message();
    return status;
  };
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("in_place_" + std::to_string(::getpid()));
  // Told apart by their tensors, before anything is loaded.
  models::testing::EditedCheckpoint wide(kGolden, folder / "wide");
  auto& norm = wide.tensors.at("model.norm.weight");
  norm.shape = {norm.shape[0] + 1};
  norm.bytes.append(norm.bytes.size() / static_cast<size_t>(norm.shape[0] - 1), '\0');
  EXPECT_NE(replace(wide.Open()).message().find("model.norm.weight"), std::string::npos);
  models::testing::EditedCheckpoint less(kGolden, folder / "less");
  less.tensors.erase("model.norm.weight");
  EXPECT_NE(replace(less.Open()).message().find("is missing"), std::string::npos);
  // Only once it is loaded: by then the old weights have to come back.
  models::testing::EditedCheckpoint ends(kGolden, folder / "ends");
  ends.config["eos_token_id"] = 5;
  ends.Edit("norm.weight",
            [](std::byte* data, size_t bytes) { std::fill_n(data, bytes, std::byte{0}); });
  EXPECT_NE(replace(ends.Open()).message().find("end tokens"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LocalExecutorOverRanks, ::testing::Values(1, 2),
                         [](const auto& param) { return std::to_string(param.param) + "Ranks"; });

TEST(LocalExecutor, SizesItsPoolByTheBudgetOfAllRanks) {
  const auto checkpoint = weights::Checkpoint::Open(kGolden).value();
  ExecutorOptions options = Options(2);
  options.total_tokens = 0;
  options.pool_budget_bytes = 4 << 20;
  const auto executor = LocalExecutor::Create(checkpoint, options).value();
  EXPECT_LE(executor->pool_bytes(), options.pool_budget_bytes);
  EXPECT_GT(executor->pool_bytes(), options.pool_budget_bytes / 2);
  EXPECT_GE(executor->total_tokens(), executor->facts().max_context);
}

TEST(LocalExecutor, RefusesPoolsThatCannotBe) {
  const auto checkpoint = weights::Checkpoint::Open(kGolden).value();
  ExecutorOptions options = Options(2);
  options.total_tokens = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(LocalExecutor::Create(checkpoint, options).status().code(),
            ErrorCode::kInvalidArgument);
  options.total_tokens = 0;
  options.pool_budget_bytes = 1000;
  EXPECT_EQ(LocalExecutor::Create(checkpoint, options).status().code(),
            ErrorCode::kResourceExhausted);
  options.num_ranks = 0;
  EXPECT_FALSE(LocalExecutor::Create(checkpoint, options).ok());
}

TEST(LocalExecutor, ACheckpointThatCannotBeLoadedIsAnErrorOnEveryRank) {
  const auto checkpoint =
      weights::Checkpoint::Open(std::string(kGolden) + "/expected.safetensors").value();
  EXPECT_FALSE(LocalExecutor::Create(checkpoint, Options(2)).ok());
}

}  // namespace
}  // namespace hayate::exec
