#pragma once
// A model ready to answer: checkpoint, tokenizer, workers, KV books, scheduler, engine, client,
// built in that order and torn down in reverse. The one place where these modules meet.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/model_options.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "exec/local_executor.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace hayate::app {

class EngineStack {
 public:
  struct Options {
    ModelOptions model;
    std::string metrics_model_name = "default";
    bool tells_cache = false;  // keep a journal of what is cached
    // One outbox each; called on the engine thread when events arrive.
    std::vector<std::function<void()>> wakes;
    std::function<void(int64_t done, int64_t total)> progress;  // bytes loaded
  };
  static Result<std::unique_ptr<EngineStack>> Create(Options options);
  // Stops the engine at once if Stop was not called.
  ~EngineStack();

  void Start() { engine_->Start(); }
  // Writes the distribution of experts where the options ask for it.
  void Stop(int64_t drain_ns);

  struct UpdateTerms {
    bool abort_all = false;  // as engine::WeightUpdate
    bool flush_cache = true;
  };
  // Puts another checkpoint of the same model in place of the one that serves; blocks until it
  // does. Any thread, one at a time. Unless OK nothing has changed: kInvalidArgument and kDataLoss
  // for checkpoints, kResourceExhausted without memory for both, kUnavailable while another update
  // runs.
  Status UpdateWeights(const std::string& path, const UpdateTerms& terms);

  engine::Client& client() { return *client_; }
  engine::Outbox& outbox(size_t index) { return *outboxes_[index]; }
  obs::Registry& registry() { return registry_; }
  const Clock& clock() const { return clock_; }
  const obs::StepLog& step_log() const { return step_log_; }
  const models::ModelFacts& facts() const { return executor_->facts(); }
  const exec::LocalExecutor& executor() const { return *executor_; }
  // What the weights come from now. Any thread.
  std::shared_ptr<const weights::Checkpoint> checkpoint() const;
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const { return tokenizer_; }
  // The most tokens, prompt and output, that one request can have.
  int32_t max_context() const { return max_context_; }

 private:
  EngineStack() = default;
  Status MakeDrafting(const Options& options, const sched::SchedulerOptions& scheduler);
  // What drafts cost; the executor is idle and the cache holds nothing yet.
  Result<spec::StepCost> MeasureStepCost(const sched::SchedulerOptions& scheduler,
                                         engine::DraftSource source);

  SteadyClock clock_;
  obs::Registry registry_;
  obs::StepLog step_log_{4096};
  mutable std::mutex checkpoint_mutex_;
  std::shared_ptr<const weights::Checkpoint> checkpoint_;  // guarded by it once the engine runs
  std::mutex update_mutex_;                                // held by the update under way
  std::unique_ptr<weights::Checkpoint> draft_checkpoint_;  // null: the drafter has none of its own
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<exec::LocalExecutor> executor_;
  std::unique_ptr<kv::KvCaches> cache_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<engine::EngineMetrics> metrics_;
  std::unique_ptr<engine::PoolMetrics> pool_metrics_;
  std::unique_ptr<engine::SpeculationMetrics> speculation_metrics_;
  std::unique_ptr<engine::Drafting> drafting_;     // null: no speculation
  std::unique_ptr<engine::CacheJournal> journal_;  // null: not asked for
  std::unique_ptr<engine::Inbox> inbox_;
  std::vector<std::unique_ptr<engine::Outbox>> outboxes_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Client> client_;
  int32_t max_context_ = 0;
  std::string expert_distribution_file_;
};

// The options that follow from the command line, with the device's defaults filled in; `scheduler`
// bounds the executor's steps.
Result<exec::ExecutorOptions> MakeExecutorOptions(const ModelOptions& model,
                                                  const sched::SchedulerOptions& scheduler);
Result<sched::SchedulerOptions> MakeSchedulerOptions(const ModelOptions& model);
// Opens the checkpoint as load_format says; dummy makes the config's tensors at random.
Result<std::unique_ptr<weights::Checkpoint>> OpenCheckpoint(const ModelOptions& model);

}  // namespace hayate::app
