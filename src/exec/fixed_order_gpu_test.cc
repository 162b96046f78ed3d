// The fixed order of sums on a GPU: an answer is the same to the bit whatever else is computed, and
// however its prompt was cut into chunks.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "exec/local_executor.h"
#include "models/tensor_list.h"

namespace hayate::exec {
namespace {

constexpr int32_t kVocab = 1000, kSlots = 70, kSlotPages = 8, kPage = 64, kMaxTokens = 2048;
constexpr int32_t kPrompt = 460, kAnswer = 24;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
  "intermediate_size": 2816, "num_hidden_layers": 3, "num_attention_heads": 8,
  "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 1000, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "max_position_embeddings": 4096, "tie_word_embeddings": false,
  "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"
})";

weights::Checkpoint RandomModel() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("hayate-fixed-order-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  weights::Checkpoint checkpoint = weights::Checkpoint::OpenConfig(folder).value();
  CHECK(checkpoint.AddDummyTensors(models::ListTensors(checkpoint, DType::kBF16).value(), 7).ok());
  std::filesystem::remove_all(folder);
  return checkpoint;
}

std::vector<TokenId> RandomTokens(uint64_t seed, int32_t count) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.Below(kVocab)));
  }
  return tokens;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

// Slot 0's prompt in chunks of the given sizes, then kAnswer tokens; `others` more sequences of
// various lengths begin one after the other meanwhile and decode beside it.
class Crowd {
 public:
  Crowd(LocalExecutor& executor, uint64_t& next_step)
      : executor_(executor), next_step_(next_step) {}

  Answer Of(const std::vector<int32_t>& chunks, int32_t others) {
    int32_t begin = 0;
    for (const int32_t chunk : chunks) {
      StepPlan plan = Begin(begin == 0);
      AddRow(plan, 0, begin, chunk, begin + chunk == kPrompt);
      begin += chunk;
      Finish(plan, others);
    }
    while (static_cast<int32_t>(answer_.tokens.size()) < kAnswer) {
      StepPlan plan = Begin(false);
      AddLateRow(plan, 0, begin++);
      Finish(plan, others);
    }
    return answer_;
  }

 private:
  StepPlan Begin(bool starts) {
    StepPlan plan{.step = next_step_++};
    if (starts) Start(plan, 0, kPrompt);
    return plan;
  }
  void Start(StepPlan& plan, int32_t slot, int32_t prompt_length) {
    SamplingParams greedy;
    greedy.temperature = 0.0f;
    plan.starts.push_back({.slot = {slot},
                           .sampling = greedy,
                           .logprobs = {.enabled = true},
                           .prompt_length = prompt_length});
    for (int32_t i = 0; i < kSlotPages; ++i) {
      plan.page_updates.push_back({{slot}, 0, i, {1 + slot * kSlotPages + i}});
    }
  }
  static void AddRow(StepPlan& plan, int32_t slot, int32_t begin, int32_t count, bool samples) {
    const std::vector<TokenId> prompt = RandomTokens(static_cast<uint64_t>(slot), begin + count);
    plan.rows.push_back({.slot = {slot},
                         .begin = begin,
                         .end = begin + count,
                         .first_token = static_cast<int32_t>(plan.tokens.size()),
                         .samples = samples});
    plan.tokens.insert(plan.tokens.end(), prompt.begin() + begin, prompt.end());
    plan.num_tokens += count;
  }
  static void AddLateRow(StepPlan& plan, int32_t slot, int32_t position) {
    plan.rows.push_back({.slot = {slot},
                         .begin = position,
                         .end = position + 1,
                         .first_token = kLateToken,
                         .samples = true});
    ++plan.num_tokens;
  }
  void Finish(StepPlan& plan, int32_t others) {
    for (size_t i = 0; i < lengths_.size(); ++i) {
      AddLateRow(plan, static_cast<int32_t>(i) + 1, lengths_[i]++);
    }
    for (int i = 0; i < 3 && static_cast<int32_t>(lengths_.size()) < others; ++i) {
      const auto slot = static_cast<int32_t>(lengths_.size()) + 1;
      const int32_t length = 1 + slot * 37 % 400;
      Start(plan, slot, length);
      AddRow(plan, slot, 0, length, true);
      lengths_.push_back(length);
    }
    executor_.Submit(plan);
    const StepResult& result = executor_.WaitOldest();
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    const RowResult& row = result.rows.at(0);
    if (row.tokens.empty()) return;
    answer_.tokens.push_back(row.tokens.at(0));
    answer_.logprobs.push_back(row.logprobs.at(0).logprob);
  }

  LocalExecutor& executor_;
  uint64_t& next_step_;
  std::vector<int32_t> lengths_;  // of the others
  Answer answer_;
};

class FixedOrderOnGpu : public ::testing::TestWithParam<ops::MatmulPrecision> {};

TEST_P(FixedOrderOnGpu, AnAnswerDoesNotDependOnItsBatchNorOnTheChunksOfItsPrompt) {
  const weights::Checkpoint checkpoint = RandomModel();
  const auto executor =
      LocalExecutor::Create(checkpoint, {.device = DeviceKind::kCuda,
                                         .memory_fraction = 0.1,
                                         .max_graph_rows = 32,
                                         .precision = GetParam(),
                                         .kv_dtype = DType::kBF16,
                                         .sum_order = ops::SumOrder::kFixed,
                                         .page_tokens = kPage,
                                         .max_running = kSlots,
                                         .max_step_tokens = kMaxTokens,
                                         .max_step_logits = kSlots,
                                         .total_tokens = int64_t{kSlots} * kSlotPages * kPage})
          .value();
  uint64_t step = 0;
  const auto answer = [&](const std::vector<int32_t>& chunks, int32_t others) {
    return Crowd(*executor, step).Of(chunks, others);
  };
  const Answer alone = answer({kPrompt}, 0);
  ASSERT_EQ(alone.tokens.size(), static_cast<size_t>(kAnswer));
  EXPECT_EQ(answer({kPrompt}, 8), alone);
  EXPECT_EQ(answer({kPrompt}, kSlots - 1), alone);
  EXPECT_EQ(answer({1, 2, 3, 130, 256, 67, 1}, 0), alone);
  EXPECT_EQ(answer({5, 200, 127, 125, 3}, kSlots - 1), alone);
}

INSTANTIATE_TEST_SUITE_P(Precisions, FixedOrderOnGpu,
                         ::testing::Values(ops::MatmulPrecision::kFast, ops::MatmulPrecision::kFp8),
                         [](const auto& test) {
                           return test.param == ops::MatmulPrecision::kFp8 ? "Fp8" : "Bf16";
                         });

}  // namespace
}  // namespace hayate::exec
