#pragma once
// One rank whose device works off a queue (CUDA; on a CPU device it runs as it is queued, which is
// how its tests run everywhere). A step is
//
//   stage → fetch inputs → step inputs, page copies → forward → sample
//
// and nothing of it waits for the device: step k + 1 is queued while k runs. The tokens of k stay
// on the device for k + 1, and are written where the engine's thread finds them. Steps of decode
// rows alone are padded to one of a few sizes and replayed as a graph that was captured for that
// size. With a drafter its pass follows, which begins with a wait for what the target drew.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/group.h"
#include "exec/queued_draft_stage.h"
#include "exec/sampler_stage.h"
#include "exec/slot_tables.h"
#include "exec/staged_step.h"
#include "exec/step_stage.h"
#include "exec/worker.h"
#include "models/draft_model.h"
#include "models/model.h"
#include "ops/step_inputs/step_inputs.h"
#include "tensor/buffer.h"
#include "tensor/workspace.h"

namespace hayate::exec {

class QueuedWorker final : public Worker {
 public:
  struct Options {
    StepLimits limits;
    // Steps of at most this many rows a dp rank are padded and captured; 0: none.
    int32_t max_graph_rows = 0;
    ReplicaPlace place;  // of one replica whose ranks all see every row, without one
  };
  // Allocates pools (`pool_pages` per group, the drafter's last), workspace, tables and results,
  // and runs the model once over a padding row. The model, the drafter (null: none), device, the
  // attention group and what the place points to outlive the worker. On the rank's thread.
  static Result<std::unique_ptr<QueuedWorker>> Create(Device& device, models::Model& model,
                                                      comm::Group& group, const Options& options,
                                                      std::span<const int32_t> pool_pages,
                                                      models::DraftModel* drafter = nullptr);
  // Device memory that Create takes besides the pools.
  static int64_t FixedBytes(const models::Model& model, const models::DraftModel* drafter,
                            const StepLimits& limits);

  void ShareWith(Worker& first) override;
  Status WarmUp() override;
  void Run(const StepPlan& plan, StepResult& result) override;
  void Finish(StepResult& result) override;
  bool Done() override;
  void AwaitSteps() override;
  bool UseIdleTime() override;
  // Captured steps hold what they were captured with: they are captured anew, in idle time.
  void UseModel(models::Model& model) override;

 private:
  // What a forward pass is padded to. A graph belongs to one shape, which all ranks replay at once.
  struct Shape {
    int32_t num_tokens = 0;
    int32_t num_rows = 0;
    int32_t num_logits = 0;
    bool captured = false;
    bool replays = false;  // has rows that compute the end of a prefix again
    // One row, longer than those that attention takes without dividing them.
    bool long_row = false;
  };
  // The arrays of a ForwardBatch, at addresses that depend on the shape alone.
  struct BatchArrays {
    Staged<int32_t> token_ids, positions;   // [T]
    Staged<int32_t> q_begin;                // [R + 1]
    Staged<int32_t> kv_len, table_row;      // [R]
    Staged<int32_t> logits_index;           // [L]
    Staged<int32_t> window_begin, settled;  // [R]; empty where no row replays
    Staged<int32_t> num_unpadded;           // [1]; empty where no experts are counted
    // Per cache group what PlanAttention writes; empty where it does not plan.
    std::vector<Staged<std::byte>> plans;
  };
  struct Flight {
    SampledStep sampled;
    // Pinned, written by the first rank's sampler: tokens, then top ids and top log-probabilities
    // of [max_logits] rows.
    Buffer results;
    Buffer hidden;  // pinned: what `hidden_` holds after the step
    bool has_hidden = false;
    Event drawn;  // with a drafter: the results are there
    Event done;
    int64_t queued_ns = 0;
  };

  QueuedWorker(Device& device, models::Model& model, comm::Group& group, const Options& options,
               models::DraftModel* drafter);
  Status Allocate(std::span<const int32_t> pool_pages);
  int num_model_groups() const { return static_cast<int>(model_->cache_layout().groups.size()); }
  int64_t PageBytes(int group) const;

  // The part of the plan that is of this dp rank; the plan itself where there is one. Sets
  // plan_rows_.
  const StepPlan& OwnPart(const StepPlan& plan);
  Shape ShapeOf(const StepPlan& plan, const StepPlan& own) const;
  // The decode rows of the dp rank that has the most; 0: not every row of the plan is one.
  int32_t MostDecodeRows(const StepPlan& plan) const;
  // How many tokens and logits each rank brings to layers whose rows travel.
  void CountRows(const StepPlan& plan, const Shape& shape);
  void CountPadded(int32_t rows);  // of every dp rank
  void SplitCounts();
  bool IsPrompt(const StepRow& row) const;
  BatchArrays TakeArrays(const Shape& shape);
  void FillArrays(const StepPlan& plan, BatchArrays& arrays, Staged<int32_t>& late_slots);
  void FillPadding(const StepPlan& plan, const Shape& shape, BatchArrays& arrays) const;
  void PutPageEntries(const StepPlan& plan, ops::StepInputsArgs& inputs);
  // Writes the attention plans of the rows that `arrays` holds.
  void PlanRows(const BatchArrays& arrays);
  // The plans of a shape with padding rows alone: the addresses and grids of all its plans.
  void PlanPadding(const Shape& shape, const BatchArrays& arrays);
  // Sets num_unpadded_ too.
  models::ForwardBatch MakeBatch(const Shape& shape, const BatchArrays& arrays);
  void CopyPages(const StepPlan& plan);
  // Waits until the masks of the plan's grammar rows are written and queues their copy.
  void SendMasks(const StepPlan& plan, size_t side, ops::SampleRowsArgs& draws);
  void Forward(const Shape& shape, const models::ForwardBatch& batch);
  void RunModel(const models::ForwardBatch& batch);
  size_t GraphOf(const Shape& shape) const;
  Graph Capture(size_t graph);
  void SetResults(const Flight& flight, ops::SampleRowsArgs& args) const;
  // Waits for what was drawn, reads it, and queues the drafter's pass over the dp rank's rows.
  void RunDrafter(const StepPlan& own, size_t side, StepResult& result);
  // What has come back of the step's draws.
  void ReadDraws(size_t side, StepResult& result) const;

  Device& device_;
  models::Model* model_;
  comm::Group& group_;
  const Options options_;
  const int dp_rank_;
  // Of the current step; kept for their memory.
  StepPlan own_plan_;
  std::vector<int32_t> plan_rows_;  // [own rows] in the plan
  // Of the current step. Per dp rank, then per rank; empty where no rows travel.
  std::vector<int32_t> num_tokens_, num_logits_, tokens_per_rank_, logits_per_rank_;
  models::DraftModel* drafter_;
  std::unique_ptr<QueuedDraftStage> drafts_;  // with a drafter
  Stream stream_;
  Workspace workspace_;
  std::vector<Buffer> pools_;           // per cache group
  std::vector<std::byte*> pool_bases_;  // per cache group
  SlotTables tables_;                   // the host's copy of device_tables_
  std::vector<Buffer> device_tables_;   // per cache group [max_rows + 1, max_slot_pages]
  SamplerStage sampler_;
  StepStage stage_;
  Buffer last_tokens_;  // [max_rows]
  Buffer counts_;       // [max_rows, V]
  Buffer logits_;       // [max_logits, V] f32
  // Of the attention group's first rank, which samples: every rank writes its slice of the
  // vocabulary there, over NVLink.
  float* shared_logits_ = nullptr;
  int32_t* shared_last_tokens_ = nullptr;
  std::array<const std::byte*, StepStage::kNumSides> shared_results_ = {};  // of its flights
  Buffer masks_;                                         // [max_logits, ⌈V/32⌉] bits
  std::array<Buffer, StepStage::kNumSides> host_masks_;  // pinned
  Buffer hidden_;                          // [max_logits, H] f32; empty where the model gives none
  Buffer features_;                        // [max_tokens, F] f32, for the drafter
  Buffer expert_counts_;                   // as the place's; empty where rows do not travel
  const int32_t* num_unpadded_ = nullptr;  // of the current step; as ForwardContext's
  StepResult drawn_;  // what the group's first rank drew, on the others, for the drafter
  std::vector<ops::AttentionRows> rows_;              // per cache group of the model
  std::vector<ops::AttentionPlanShape> plan_shapes_;  // the same; empty without a GPU
  std::vector<Buffer> plan_scratch_;                  // per cache group
  std::vector<ops::AttentionPlan> plans_;             // per cache group, of the current step
  const bool splits_by_position_;                     // the attention of some group
  std::vector<int32_t> prompt_lengths_;               // [max_rows], by slot
  std::vector<uint8_t> is_prompt_;                    // of the current step's rows

  std::vector<int32_t> graph_rows_;  // sizes to pad to, ascending
  // Of those sizes, the first for a short row, and of one long row; null until captured.
  std::vector<Graph> graphs_;
  size_t num_captured_ = 0;

  std::array<Flight, StepStage::kNumSides> flights_;
  Event awaited_;                 // of AwaitSteps
  uint64_t num_run_ = 0;          // rank's thread
  uint64_t num_finished_ = 0;     // engine's thread
  int64_t last_finished_ns_ = 0;  // engine's thread
};

}  // namespace hayate::exec
