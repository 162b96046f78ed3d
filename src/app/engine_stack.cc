#include "app/engine_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "app/default_model.h"
#include "app/machine.h"
#include "app/tokenizer_loading.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "comm/expert_plan_json.h"
#include "models/tensor_list.h"

namespace hayate::app {
namespace {

constexpr size_t kOutboxEvents = 65536;
constexpr uint64_t kDummySeed = 1;
// What the CUDA products of hundreds of tokens come in (ops/matmul/sm90).
constexpr int32_t kCudaTileTokens = 64;
constexpr int32_t kForcedCostTokens = 16;  // of the largest step measured for forced drafts
// How long the cost of drafts is measured, for forced ones and for others.
constexpr int64_t kForcedCostNs = 100'000'000, kCostNs = 2'000'000'000;
constexpr size_t kMaxExpertPlanBytes = size_t{64} << 20;

Result<DType> ParseKvDtype(const std::string& name) {
  if (name == "f16") return DType::kF16;
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "int8") return DType::kI8;
  if (name == "fp8_e4m3") return DType::kF8E4M3;
  return Error(ErrorCode::kInvalidArgument,
               "--kv-cache-dtype '{}' is unknown; use auto, f32, f16, bf16, int8 or fp8_e4m3",
               name);
}

Result<ops::MatmulPrecision> ParsePrecision(const ModelOptions& model) {
  const std::string& name = model.precision;
  if (model.quantization == "fp8") return ops::MatmulPrecision::kFp8;
  if (name == "fast") return ops::MatmulPrecision::kFast;
  if (name == "exact") return ops::MatmulPrecision::kExact;
  return Error(ErrorCode::kInvalidArgument, "--precision '{}' is unknown; use fast or exact", name);
}

Result<models::WindowReuse> ParseWindowReuse(const std::string& name) {
  if (name == "off") return models::WindowReuse::kStored;
  if (name == "on") return models::WindowReuse::kReplayed;
  if (name == "exact") return models::WindowReuse::kReplayedExactly;
  return Error(ErrorCode::kInvalidArgument,
               "--swa-bounded-replay '{}' is unknown; use off, on or exact", name);
}

// Random BF16 weights of the shapes that the folder's config.json tells.
Result<std::unique_ptr<weights::Checkpoint>> MakeDummyCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::OpenConfig(path));
  if (checkpoint.format() != weights::CheckpointFormat::kSafetensors) {
    return Error(ErrorCode::kUnsupported,
                 "{}: --load-format dummy needs a model directory with config.json", path);
  }
  ASSIGN_OR_RETURN(auto tensors, models::ListTensors(checkpoint, DType::kBF16));
  RETURN_IF_ERROR(checkpoint.AddDummyTensors(std::move(tensors), kDummySeed));
  return std::make_unique<weights::Checkpoint>(std::move(checkpoint));
}

Result<std::shared_ptr<const text::Tokenizer>> OpenTokenizer(const ModelOptions& model,
                                                             const weights::Checkpoint& own) {
  if (model.tokenizer_path.empty()) return LoadTokenizer(own);
  ASSIGN_OR_RETURN(const weights::Checkpoint other,
                   weights::Checkpoint::OpenConfig(model.tokenizer_path));
  return LoadTokenizer(other);
}

}  // namespace

Result<sched::SchedulerOptions> MakeSchedulerOptions(const ModelOptions& model) {
  sched::SchedulerOptions options;
  ASSIGN_OR_RETURN(options.policy, sched::ParsePolicy(model.schedule_policy));
  options.max_running = model.max_running_requests;
  options.num_dp_ranks = model.dp_size;
  if (options.max_running < options.num_dp_ranks) {
    return Error(ErrorCode::kInvalidArgument, "--max-running-requests {} is below --dp-size {}",
                 options.max_running, options.num_dp_ranks);
  }
  options.chunked_prefill_size = model.chunked_prefill_size;
  options.mixed_chunk_size = model.mixed_chunk_size;
  if (model.device == "cuda") options.mixed_step_multiple = kCudaTileTokens;
  options.prefix_reuse = !model.disable_radix_cache;
  ASSIGN_OR_RETURN(const Speculation speculation,
                   ResolveSpeculation(model.speculation, model.device, model.max_running_requests));
  options.max_drafts = speculation.max_drafts;
  options.max_step_drafts = speculation.max_step_drafts;
  return options;
}

Result<exec::ExecutorOptions> MakeExecutorOptions(const ModelOptions& model,
                                                  const sched::SchedulerOptions& scheduler) {
  exec::ExecutorOptions options;
  ASSIGN_OR_RETURN(options.kv_dtype, ParseKvDtype(model.kv_cache_dtype));
  ASSIGN_OR_RETURN(options.precision, ParsePrecision(model));
  ASSIGN_OR_RETURN(options.window_reuse, ParseWindowReuse(model.swa_bounded_replay));
  options.device = model.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  options.sum_order = model.deterministic ? ops::SumOrder::kFixed : ops::SumOrder::kFastest;
  options.memory_fraction = model.mem_fraction_static;
  options.max_graph_rows = model.cuda_graph_max_bs;
  options.num_ranks = model.tp_size;
  if (options.device == DeviceKind::kCpu) {
    options.num_ranks = model.tp_size > 1   ? model.tp_size
                        : model.threads > 0 ? model.threads
                                            : NumPhysicalCores();
  }
  if (options.num_ranks > comm::kMaxLocalRanks) {
    return Error(ErrorCode::kInvalidArgument, "--threads {} is more than {}", options.num_ranks,
                 comm::kMaxLocalRanks);
  }
  options.first_gpu = model.base_gpu_id;
  options.gpu_step = model.gpu_id_step;
  options.dp_size = model.dp_size;
  options.ep_size = model.ep_size;
  options.expert_plan.num_redundant = model.ep_num_redundant_experts;
  if (model.enable_eplb) {
    options.rebalance = {.interval = model.eplb_rebalance_num_iterations,
                         .max_balance = model.eplb_min_rebalancing_utilization_threshold};
  }
  if (model.init_expert_location != "trivial") {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFile(model.init_expert_location, kMaxExpertPlanBytes));
    if (Status status = comm::ReadExpertPlan(text, options.expert_plan); !status.ok()) {
      return status.Under(model.init_expert_location);
    }
  }
  options.fail_rank_at_step = static_cast<uint64_t>(model.fail_rank_at_step);
  options.page_tokens = model.page_size;
  options.max_context = model.context_length;
  options.max_running = model.max_running_requests;
  ASSIGN_OR_RETURN(const Speculation speculation,
                   ResolveSpeculation(model.speculation, model.device, model.max_running_requests));
  options.max_drafts = speculation.max_drafts;
  options.draft = speculation.draft_model;
  options.max_step_tokens = scheduler.max_step_tokens();
  options.max_step_logits = scheduler.max_step_logits();
  options.total_tokens = model.max_total_tokens;
  options.pool_budget_bytes =
      static_cast<int64_t>(static_cast<double>(AvailableMemoryBytes()) * model.mem_fraction_static);
  return options;
}

Result<std::unique_ptr<weights::Checkpoint>> OpenCheckpoint(const ModelOptions& model) {
  std::string path = model.model_path;
  if (path.empty()) {
    ASSIGN_OR_RETURN(path, FindOrFetchDefaultModel());
  }
  if (model.load_format == "dummy") return MakeDummyCheckpoint(path);
  ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(path));
  return std::make_unique<weights::Checkpoint>(std::move(checkpoint));
}

Result<std::unique_ptr<EngineStack>> EngineStack::Create(Options options) {
  ASSIGN_OR_RETURN(options.model, WithDeviceDefaults(std::move(options.model)));
  auto stack = std::unique_ptr<EngineStack>(new EngineStack());
  ASSIGN_OR_RETURN(sched::SchedulerOptions scheduler, MakeSchedulerOptions(options.model));
  ASSIGN_OR_RETURN(exec::ExecutorOptions executor, MakeExecutorOptions(options.model, scheduler));
  executor.progress = std::move(options.progress);
  stack->expert_distribution_file_ = options.model.expert_distribution_file;
  ASSIGN_OR_RETURN(stack->checkpoint_, OpenCheckpoint(options.model));
  ASSIGN_OR_RETURN(stack->tokenizer_, OpenTokenizer(options.model, *stack->checkpoint_));
  const std::string& draft_path = options.model.speculation.draft_model_path;
  if (!draft_path.empty()) {
    ASSIGN_OR_RETURN(weights::Checkpoint draft, weights::Checkpoint::Open(draft_path));
    stack->draft_checkpoint_ = std::make_unique<weights::Checkpoint>(std::move(draft));
    executor.draft_checkpoint = stack->draft_checkpoint_.get();
  }
  ASSIGN_OR_RETURN(stack->executor_, exec::LocalExecutor::Create(*stack->checkpoint_, executor));

  scheduler.draft_lookahead = stack->executor_->draft_lookahead();
  RETURN_IF_ERROR(stack->MakeDrafting(options, scheduler));
  ASSIGN_OR_RETURN(stack->cache_, kv::KvCaches::Create({.layout = stack->executor_->cache_layout(),
                                                        .num_pages = stack->executor_->pool_pages(),
                                                        .reuse = options.model.disable_radix_cache
                                                                     ? kv::PrefixReuse::kOff
                                                                     : kv::PrefixReuse::kOn,
                                                        .keeps_names = options.tells_cache},
                                                       options.model.dp_size));
  stack->max_context_ = static_cast<int32_t>(
      std::min<int64_t>(stack->executor_->facts().max_context, stack->executor_->total_tokens()));
  scheduler.max_context = stack->max_context_;
  stack->scheduler_ = std::make_unique<sched::Scheduler>(scheduler, *stack->cache_, stack->clock_);

  stack->metrics_ =
      std::make_unique<engine::EngineMetrics>(stack->registry_, options.metrics_model_name);
  stack->pool_metrics_ = std::make_unique<engine::PoolMetrics>(
      stack->registry_, options.metrics_model_name, *stack->cache_);
  if (options.tells_cache) stack->journal_ = std::make_unique<engine::CacheJournal>();
  stack->inbox_ =
      std::make_unique<engine::Inbox>(static_cast<size_t>(options.model.max_queued_requests) +
                                      static_cast<size_t>(options.model.max_running_requests));
  std::vector<engine::Outbox*> outboxes;
  for (auto& wake : options.wakes) {
    stack->outboxes_.push_back(std::make_unique<engine::Outbox>(kOutboxEvents, std::move(wake)));
    outboxes.push_back(stack->outboxes_.back().get());
  }
  stack->engine_ = std::make_unique<engine::Engine>(
      engine::Engine::Parts{.scheduler = stack->scheduler_.get(),
                            .cache = stack->cache_.get(),
                            .executor = stack->executor_.get(),
                            .inbox = stack->inbox_.get(),
                            .outboxes = std::move(outboxes),
                            .clock = &stack->clock_,
                            .metrics = stack->metrics_.get(),
                            .step_log = &stack->step_log_,
                            .drafting = stack->drafting_.get(),
                            .journal = stack->journal_.get(),
                            .pools = stack->pool_metrics_.get(),
                            .max_queued = options.model.max_queued_requests});
  stack->client_ = std::make_unique<engine::Client>(*stack->inbox_, *stack->engine_);
  return stack;
}

Status EngineStack::MakeDrafting(const Options& options, const sched::SchedulerOptions& scheduler) {
  if (scheduler.max_drafts == 0) return OkStatus();
  const ModelOptions& model = options.model;
  ASSIGN_OR_RETURN(const Speculation speculation,
                   ResolveSpeculation(model.speculation, model.device, model.max_running_requests));
  std::optional<spec::StepCost> cost;
  if (speculation.adaptive) {
    ASSIGN_OR_RETURN(cost, MeasureStepCost(scheduler, speculation.source));
  } else {
    LOG_INFO("speculation: {} drafts a row, whatever they cost", scheduler.max_drafts);
  }
  speculation_metrics_ =
      std::make_unique<engine::SpeculationMetrics>(registry_, options.metrics_model_name);
  drafting_ = std::make_unique<engine::Drafting>(
      engine::DraftingOptions{.source = speculation.source,
                              .max_drafts = speculation.max_drafts,
                              .max_step_drafts = speculation.max_step_drafts,
                              .max_prefill = scheduler.chunked_prefill_size,
                              .counts_what_stands = model.device == "cpu",
                              .forced_accept_length = model.speculation.forced_acceptance},
      std::move(cost), *speculation_metrics_);
  return OkStatus();
}

Result<spec::StepCost> EngineStack::MeasureStepCost(const sched::SchedulerOptions& scheduler,
                                                    engine::DraftSource source) {
  // Forced text is short and sure: a rough curve will do, and a quick start.
  const bool forced = source == engine::DraftSource::kGrammar;
  ASSIGN_OR_RETURN(
      spec::StepCost cost,
      spec::MeasureStepCost(
          *executor_, clock_,
          {.vocab_size = executor_->facts().vocab_size,
           .max_drafts = scheduler.max_drafts,
           .max_rows = scheduler.max_running,
           .max_step_tokens = forced ? std::min(kForcedCostTokens, scheduler.max_step_tokens())
                                     : scheduler.max_step_tokens(),
           .budget_ns = forced ? kForcedCostNs : kCostNs,
           .layout = &executor_->cache_layout(),
           .pool_pages = executor_->pool_pages()}));
  std::string points;
  for (const spec::StepCost::Point& point : cost.points()) {
    points += fmt::format(" {}: {:.2f}", point.tokens, point.ns * 1e-6);
  }
  LOG_INFO("speculation: up to {} drafts a row; ms of a step by its tokens:{}",
           scheduler.max_drafts, points);
  return cost;
}

EngineStack::~EngineStack() = default;

std::shared_ptr<const weights::Checkpoint> EngineStack::checkpoint() const {
  const std::lock_guard lock(checkpoint_mutex_);
  return checkpoint_;
}

Status EngineStack::UpdateWeights(const std::string& path, const UpdateTerms& terms) {
  const std::unique_lock lock(update_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return Status(ErrorCode::kUnavailable, "another update of the weights is under way");
  }
  ASSIGN_OR_RETURN(weights::Checkpoint opened, weights::Checkpoint::Open(path));
  const auto fresh = std::make_shared<const weights::Checkpoint>(std::move(opened));
  if (fresh->architecture() != checkpoint()->architecture()) {
    return InvalidField("model_path", "holds a '{}', the served model is a '{}'",
                        fresh->architecture(), checkpoint()->architecture());
  }
  // Both copies are in memory until the old one is let go, unless the new one takes its place.
  const int64_t available = AvailableMemoryBytes();
  if (!executor_->replaces_in_place() && available < executor_->weight_bytes()) {
    return Error(ErrorCode::kResourceExhausted,
                 "the new weights need {} MiB beside the old ones, {} MiB are free",
                 executor_->weight_bytes() >> 20, available >> 20);
  }
  std::future<Status> done =
      client_->UpdateWeights({.apply = [this, &fresh] { return executor_->ReplaceWeights(*fresh); },
                              .abort_all = terms.abort_all,
                              .flush_cache = terms.flush_cache});
  RETURN_IF_ERROR(done.get());
  const std::lock_guard guard(checkpoint_mutex_);
  checkpoint_ = fresh;
  LOG_INFO("the weights are those of {}", path);
  return OkStatus();
}

void EngineStack::Stop(int64_t drain_ns) {
  engine_->Stop(drain_ns);
  if (expert_distribution_file_.empty()) return;
  std::ofstream file(expert_distribution_file_);
  file << comm::WriteExpertCounts(executor_->ExpertCounts(), std::max(1, executor_->num_experts()));
  if (!file.flush()) LOG_WARN("{}: cannot be written", expert_distribution_file_);
}

}  // namespace hayate::app
