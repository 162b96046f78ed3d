#pragma once
// The workers of this process: one thread a rank, plans in, results out.
//
//   engine thread   Submit(k) ─┐        WaitOldest() = result k ─┐
//   rank threads               └ Run(k) on every rank ┘ Run(k + 1) …
//
// Plans and results live in rings of kMaxInFlight entries. An entry is written by the engine thread
// before `submitted_` counts it and not again before its result was taken.

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread.h"
#include "comm/rank_layout.h"
#include "core/step_executor.h"
#include "exec/expert_rebalancer.h"
#include "exec/pool_plan.h"
#include "exec/rank_worker.h"
#include "exec/staged_step.h"
#include "exec/weight_replacement.h"
#include "exec/worker.h"
#include "models/draft_model.h"
#include "models/expert_shape.h"
#include "models/registry.h"

namespace hayate::exec {

struct ExecutorOptions {
  DeviceKind device = DeviceKind::kCpu;
  int num_ranks = 1;  // CPU: threads; CUDA: GPUs
  // CUDA: rank r computes on GPU first_gpu + r · gpu_step. Ranks of step 0 share one.
  int first_gpu = 0;
  int gpu_step = 1;
  // As comm::RankLayoutOptions.
  int dp_size = 1;
  int ep_size = 0;
  comm::ExpertPlan expert_plan;  // where rows travel; num_ranks is set here
  RebalanceOptions rebalance;    // where rows travel
  // For drills and tests: the last of the ranks, or its GPU, fails before it carries out this step,
  // counted from 1; 0: never.
  uint64_t fail_rank_at_step = 0;
  // CUDA: share of a GPU's free memory to take, for weights, pools and everything else. Ranks that
  // share a GPU share it evenly.
  double memory_fraction = 0.9;
  // CUDA: decode steps of at most this many rows are replayed as graphs.
  int32_t max_graph_rows = 256;
  ops::MatmulPrecision precision = ops::MatmulPrecision::kFast;
  DType kv_dtype = DType::kF16;
  ops::SumOrder sum_order = ops::SumOrder::kFastest;
  int32_t page_tokens = 32;
  int32_t max_context = 0;  // 0: the checkpoint's
  int32_t max_running = 64;
  // Speculation: drafts of one row, and the model they come from, in the target's checkpoint or one
  // of its own that outlives the executor.
  models::WindowReuse window_reuse = models::WindowReuse::kStored;
  int32_t max_drafts = 0;
  models::DraftKind draft = models::DraftKind::kNone;
  const weights::Checkpoint* draft_checkpoint = nullptr;
  int32_t max_step_tokens = 0;  // of one plan
  int32_t max_step_logits = 0;  // of one plan
  // Tokens of the KV pools of all dp ranks; 0: as many as `pool_budget_bytes` (all ranks together)
  // holds, or on CUDA what is left of the device's memory.
  int64_t total_tokens = 0;
  int64_t pool_budget_bytes = 0;
  // ReplaceWeights loads into the place of the old weights and not beside them. Always so on CUDA;
  // on CPUs for tests.
  bool replace_in_place = false;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes read by rank 0, on its thread
};

class LocalExecutor final : public StepExecutor {
 public:
  // Loads the checkpoint on all ranks at once and allocates everything. The checkpoint outlives the
  // executor.
  static Result<std::unique_ptr<LocalExecutor>> Create(const weights::Checkpoint& checkpoint,
                                                       const ExecutorOptions& options);
  ~LocalExecutor() override;  // finishes the steps in flight, then joins the ranks

  void Submit(const StepPlan& plan) override;
  StepResult& WaitOldest() override;

  // Loads another checkpoint of the same model and computes with it from the next step on. The
  // engine's thread, with no step in flight. Blocks as long as loading takes, and needs memory for
  // both for as long; in place it needs none, but the same tensors, names, types and shapes. Unless
  // OK the old weights serve on: in place they are loaded again, and where even that fails the
  // device has failed. The checkpoint outlives the executor or the next replacement; the one before
  // is not used any more. kUnsupported with a drafter, and where rows travel to experts.
  Status ReplaceWeights(const weights::Checkpoint& checkpoint);
  bool replaces_in_place() const {
    return options_.device == DeviceKind::kCuda || options_.replace_in_place;
  }

  const models::ModelFacts& facts() const;
  // The model's groups, then the drafter's.
  const CacheLayout& cache_layout() const { return layout_; }
  // Positions behind a row's draws that the drafter fills; 0: it fills none.
  int32_t draft_lookahead() const;
  const std::vector<int32_t>& pool_pages() const { return pool_pages_; }
  // Of one dp rank: no sequence can have more.
  int64_t total_tokens() const { return total_tokens_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  bool gives_hidden() const;
  int64_t pool_bytes() const;
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  const comm::RankLayout& rank_layout() const { return layout_of_ranks_; }
  // How often each expert of each layer was chosen since the start, [layers × num_experts()]; empty
  // where the model has no experts, and on CUDA where no rows travel to them. Any thread.
  std::vector<int64_t> ExpertCounts() const;
  int32_t num_experts() const { return expert_shape_.num_experts; }
  // How evenly rows that chose experts so often (counts as ExpertCounts gives them) load the ranks:
  // mean ÷ fullest, over the layers. 1 where no rows travel. Any thread.
  double ExpertBalance(std::span<const int64_t> counts) const;
  RebalanceStats rebalance_stats() const;  // any thread
  std::string device_name() const;

 private:
  struct Rank;
  explicit LocalExecutor(const ExecutorOptions& options);
  enum class Phase : uint8_t { kOpen, kLoad, kAllocate, kWarmUp, kCapture };
  Status Start(const weights::Checkpoint& checkpoint);
  // What joins the ranks after a phase of the start; on the thread of the last rank to get there.
  void JoinPhase();
  Status PlaceExperts(const weights::Checkpoint& checkpoint);
  Status MakeExpertCounts();
  Status MakeRebalancer();
  Status CheckDevice() const;
  Status MakeGroups();
  Status MakeCpuGroups();
  Status MakeGpuGroups();
  ReplicaPlace PlaceOf(Rank& rank) const;
  float* LogitsOf(const Rank& rank);
  int32_t* GuessesOf(const Rank& rank);
  static Status FailureOf(const Rank& rank);
  int32_t SlotsPerDpRank() const;
  Status SizePools();
  StepLimits LimitsFor(int64_t longest_sequence) const;
  int64_t PoolBudgetPerRank() const;
  void RankMain(Rank& rank, const weights::Checkpoint& checkpoint);
  Status OpenDevice(Rank& rank);
  bool ranks_share_a_gpu() const {
    return options_.device == DeviceKind::kCuda && options_.num_ranks > 1 && options_.gpu_step == 0;
  }
  models::LoadOptions LoadOptionsOf(const Rank& rank) const;
  Status LoadRank(Rank& rank, const weights::Checkpoint& checkpoint) const;
  Status CheckReplaceable() const;
  void ReplaceOnRank(Rank& rank);
  Result<std::unique_ptr<Worker>> MakeWorker(Rank& rank);
  static void CaptureAll(Rank& rank);
  void ServeSteps(Rank& rank);
  void FailOnPurpose(Rank& rank);
  void Complete(Rank& rank, uint64_t step);
  // Until the oldest step is done on all GPUs; how it failed, if it did.
  Status AwaitGpus();

  ExecutorOptions options_;
  comm::RankLayout layout_of_ranks_;
  models::ExpertShape expert_shape_;
  PlacedExperts placed_experts_;  // no layers where no rows travel
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<ExpertRebalancer> rebalancer_;  // null: experts stay
  CacheLayout layout_;
  std::vector<int32_t> pool_pages_;
  int64_t total_tokens_ = 0;
  int64_t weight_bytes_ = 0;  // all ranks; replaced weights are as many
  StepLimits limits_;
  std::vector<float> logits_;         // [dp ranks, max_logits, V]
  std::vector<int32_t> last_tokens_;  // [max_running]
  std::vector<int32_t> guesses_;      // [dp ranks, max_running]

  std::array<StepPlan, kMaxInFlight> plans_;
  std::array<StepResult, kMaxInFlight> results_;
  uint64_t num_taken_ = 0;  // engine thread alone
  // Release by the engine thread in Submit, acquire by the ranks: publishes plans_.
  std::atomic<uint64_t> submitted_{0};
  // Ranks carry out steps below it and then leave. Set before the wake-up in the destructor.
  std::atomic<uint64_t> stop_at_{~uint64_t{0}};

  // Not null while weights are replaced, as a step without a plan: published with submitted_.
  std::shared_ptr<WeightReplacement> replacement_;
  const weights::Checkpoint* served_ = nullptr;  // changed between steps alone

  // The hand-shake of the start.
  struct Startup;
  std::unique_ptr<Startup> startup_;
  std::vector<NamedThread> threads_;
};

}  // namespace hayate::exec
