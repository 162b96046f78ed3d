#include "exec/queued_worker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/step_inputs/step_inputs.h"

namespace hayate::exec {
namespace {

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Results: the sampler rows' tokens, then of the rows of logits the top ids, then their scores.
size_t TokenBytes(int32_t max_logits) {
  return static_cast<size_t>(SamplerStage::MaxRows(max_logits)) * sizeof(ops::SampledToken);
}
size_t TopBytes(int32_t max_logits) {
  return static_cast<size_t>(max_logits) * ops::kMaxTopLogprobs * (sizeof(int32_t) + sizeof(float));
}
size_t ResultBytes(int32_t max_logits) { return TokenBytes(max_logits) + TopBytes(max_logits); }

size_t EntriesOf(const StepLimits& limits) {
  return static_cast<size_t>(limits.max_rows) * static_cast<size_t>(limits.max_slot_pages) *
         static_cast<size_t>(limits.num_groups);
}

size_t TableInts(const StepLimits& limits) {
  return (static_cast<size_t>(limits.max_rows) + 1) * static_cast<size_t>(limits.max_slot_pages);
}

// How each cache group is planned; empty shapes where its attention takes no plan.
std::vector<ops::AttentionPlanShape> PlanShapes(const models::Model& model,
                                                const StepLimits& limits) {
  std::vector<ops::AttentionPlanShape> shapes;
  const int num_groups = static_cast<int>(model.cache_layout().groups.size());
  for (int group = 0; group < num_groups; ++group) {
    ops::AttentionPlanShape shape = model.attention_shape(group);
    shape.max_rows = limits.max_rows;
    shape.max_tokens = limits.max_tokens;
    shapes.push_back(ops::CanPlan(shape) ? shape : ops::AttentionPlanShape());
  }
  return shapes;
}

int64_t PlanBytes(const ops::AttentionPlanShape& shape, int32_t num_rows, int32_t num_tokens) {
  return ops::CanPlan(shape) ? ops::PlanStagedBytes(shape, num_rows, num_tokens) : 0;
}
int64_t ScratchBytes(const ops::AttentionPlanShape& shape) {
  return ops::CanPlan(shape) ? ops::PlanScratchBytes(shape) : 0;
}

size_t StageBytes(const models::Model& model, const StepLimits& limits) {
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  const auto rows = static_cast<size_t>(limits.max_rows);
  const size_t ints = 3 * tokens + 5 * (rows + 1) + static_cast<size_t>(limits.max_logits);
  // No slot's answer is longer than its table.
  const int64_t outputs = int64_t{limits.max_rows} * limits.max_slot_pages * limits.page_tokens;
  constexpr size_t kPadding = 16 * 256;
  size_t plans = 0;
  for (const ops::AttentionPlanShape& shape : PlanShapes(model, limits)) {
    plans += 256 + static_cast<size_t>(PlanBytes(shape, limits.max_rows, limits.max_tokens));
  }
  return plans + ints * sizeof(int32_t) + EntriesOf(limits) * sizeof(ops::PageEntry) +
         SamplerStage::MaxBytes(limits.max_rows, limits.max_logits, outputs) + kPadding;
}

int64_t WorkspaceBytes(const models::Model& model, const models::DraftModel* drafter,
                       const StepLimits& limits) {
  const int64_t forward = model.workspace_bytes(limits.max_tokens, limits.max_logits);
  if (drafter == nullptr) return forward;
  return std::max(forward, drafter->workspace_bytes(limits.max_tokens, limits.max_rows));
}

size_t FeatureBytes(const models::Model& model, const models::DraftModel* drafter,
                    const StepLimits& limits) {
  if (drafter == nullptr) return 0;
  return static_cast<size_t>(limits.max_tokens) * static_cast<size_t>(model.feature_width()) *
         sizeof(float);
}

// Few sizes, so that all are captured soon; close enough that padding costs little: at most an
// eighth of the rows from 64 on.
std::vector<int32_t> GraphSizes(int32_t max_rows) {
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size < max_rows; size += size < 4     ? size
                                                  : size < 32  ? 4
                                                  : size < 128 ? 8
                                                  : size < 256 ? 16
                                                               : 32) {
    sizes.push_back(size);
  }
  if (max_rows > 0) sizes.push_back(max_rows);
  return sizes;
}

// Of one row's mask.
size_t MaskBytes(int32_t vocab_size) {
  return CeilDiv(static_cast<size_t>(vocab_size), size_t{32}) * sizeof(uint32_t);
}

// Hidden states of a step, where the model gives them.
size_t HiddenFloats(const models::Model& model, const StepLimits& limits) {
  if (!model.gives_hidden()) return 0;
  return static_cast<size_t>(limits.max_logits) * static_cast<size_t>(model.facts().hidden_size);
}

template <typename T>
T* As(const Buffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}
template <typename T>
std::span<T> Span(const Buffer& buffer) {
  return {As<T>(buffer), buffer.size() / sizeof(T)};
}

}  // namespace

int64_t QueuedWorker::FixedBytes(const models::Model& model, const models::DraftModel* drafter,
                                 const StepLimits& limits) {
  const int64_t vocab = model.facts().vocab_size;
  constexpr int64_t kRounding = 64 * 512;
  int64_t scratch = 0;
  for (const ops::AttentionPlanShape& shape : PlanShapes(model, limits)) {
    scratch += ScratchBytes(shape);
  }
  if (drafter != nullptr) scratch += QueuedDraftStage::FixedBytes(*drafter, limits);
  scratch += static_cast<int64_t>(FeatureBytes(model, drafter, limits));
  return scratch + WorkspaceBytes(model, drafter, limits) +
         static_cast<int64_t>(StageBytes(model, limits)) +
         static_cast<int64_t>(HiddenFloats(model, limits) * sizeof(float)) +
         static_cast<int64_t>(sizeof(int32_t)) *
             (static_cast<int64_t>(TableInts(limits)) * limits.num_groups + limits.max_rows +
              limits.max_rows * vocab + limits.max_logits * vocab) +
         limits.max_logits * static_cast<int64_t>(MaskBytes(model.facts().vocab_size)) + kRounding;
}

Result<std::unique_ptr<QueuedWorker>> QueuedWorker::Create(Device& device, models::Model& model,
                                                           comm::Group& group,
                                                           const Options& options,
                                                           std::span<const int32_t> pool_pages,
                                                           models::DraftModel* drafter) {
  if (model.facts().vocab_size > ops::kMaxSamplerVocab) {
    return Error(ErrorCode::kUnsupported,
                 "a vocabulary of {} tokens; the sampler of {} takes at most {}",
                 model.facts().vocab_size, device.name(), ops::kMaxSamplerVocab);
  }
  auto worker =
      std::unique_ptr<QueuedWorker>(new QueuedWorker(device, model, group, options, drafter));
  RETURN_IF_ERROR(worker->Allocate(pool_pages));
  return worker;
}

QueuedWorker::QueuedWorker(Device& device, models::Model& model, comm::Group& group,
                           const Options& options, models::DraftModel* drafter)
    : device_(device),
      model_(&model),
      group_(group),
      options_(options),
      dp_rank_(options.place.layout.dp_rank(options.place.rank)),
      drafter_(drafter),
      stream_(device.NewStream()),
      workspace_(Buffer()),
      tables_(options.limits.num_groups, options.limits.max_rows, options.limits.max_slot_pages),
      sampler_(options.limits.max_rows, model.facts().vocab_size),
      plan_shapes_(PlanShapes(model, options.limits)),
      plans_(plan_shapes_.size()),
      splits_by_position_(std::ranges::any_of(plan_shapes_,
                                              [](const ops::AttentionPlanShape& shape) {
                                                return shape.split == ops::SplitRule::kByPosition;
                                              })),
      prompt_lengths_(static_cast<size_t>(options.limits.max_rows)),
      graph_rows_(GraphSizes(std::min(options.max_graph_rows, options.limits.max_rows))),
      graphs_(graph_rows_.empty() ? 0 : graph_rows_.size() + 1) {}

Status QueuedWorker::Allocate(std::span<const int32_t> pool_pages) {
  if (options_.place.exchange != nullptr) {
    const comm::RankLayout& layout = options_.place.layout;
    num_tokens_.resize(static_cast<size_t>(layout.dp_size()));
    num_logits_.resize(num_tokens_.size());
    tokens_per_rank_.resize(static_cast<size_t>(layout.num_ranks()));
    logits_per_rank_.resize(tokens_per_rank_.size());
  }
  const StepLimits& limits = options_.limits;
  const auto vocab = static_cast<size_t>(model_->facts().vocab_size);
  const auto take = [&](size_t bytes) { return Buffer::Allocate(device_, bytes); };
  const int64_t workspace_bytes = WorkspaceBytes(*model_, drafter_, limits);
  ASSIGN_OR_RETURN(Buffer workspace, take(static_cast<size_t>(workspace_bytes)));
  workspace_ = Workspace(std::move(workspace));
  ASSIGN_OR_RETURN(stage_, StepStage::Create(device_, StageBytes(*model_, limits)));
  const auto rows = static_cast<size_t>(limits.max_rows);
  ASSIGN_OR_RETURN(last_tokens_, take(rows * sizeof(int32_t)));
  ASSIGN_OR_RETURN(counts_, take(rows * vocab * sizeof(int32_t)));
  ASSIGN_OR_RETURN(logits_, take(static_cast<size_t>(limits.max_logits) * vocab * sizeof(float)));
  ASSIGN_OR_RETURN(hidden_, take(HiddenFloats(*model_, limits) * sizeof(float)));
  const size_t mask_bytes =
      static_cast<size_t>(limits.max_logits) * MaskBytes(model_->facts().vocab_size);
  ASSIGN_OR_RETURN(masks_, take(mask_bytes));
  for (Buffer& host : host_masks_) {
    ASSIGN_OR_RETURN(host, Buffer::Allocate(device_, mask_bytes, MemoryKind::kPinned));
  }
  for (Flight& flight : flights_) {
    ASSIGN_OR_RETURN(flight.results, Buffer::Allocate(device_, ResultBytes(limits.max_logits),
                                                      MemoryKind::kPinned));
    const size_t hidden_bytes = HiddenFloats(*model_, limits) * sizeof(float);
    ASSIGN_OR_RETURN(flight.hidden, Buffer::Allocate(device_, hidden_bytes, MemoryKind::kPinned));
    flight.done = device_.NewEvent();
    if (drafter_ != nullptr) flight.drawn = device_.NewEvent();
  }
  // Every entry names the scratch page until a plan says otherwise; the last row is the padding's.
  static_assert(kScratchPage.value == 0);
  const std::vector<int32_t> scratch(TableInts(limits), kScratchPage.value);
  for (int group = 0; group < limits.num_groups; ++group) {
    ASSIGN_OR_RETURN(Buffer table, take(scratch.size() * sizeof(int32_t)));
    device_.Upload(table.data(), scratch.data(), table.size());
    device_tables_.push_back(std::move(table));
  }
  const std::vector<int32_t> zeros(rows, 0);
  device_.Upload(last_tokens_.data(), zeros.data(), last_tokens_.size());
  awaited_ = device_.NewEvent();
  if (options_.place.exchange != nullptr) {
    const std::vector<int64_t> none(options_.place.expert_counts.size(), 0);
    ASSIGN_OR_RETURN(expert_counts_, take(none.size() * sizeof(int64_t)));
    device_.Upload(expert_counts_.data(), none.data(), expert_counts_.size());
  }
  rows_.resize(static_cast<size_t>(num_model_groups()));
  for (size_t g = 0; g < pool_pages.size(); ++g) {
    const int64_t bytes = pool_pages[g] * PageBytes(static_cast<int>(g));
    ASSIGN_OR_RETURN(Buffer pool, take(static_cast<size_t>(bytes)));
    pool_bases_.push_back(pool.data());
    pools_.push_back(std::move(pool));
  }
  for (const ops::AttentionPlanShape& shape : plan_shapes_) {
    const std::vector<std::byte> none(static_cast<size_t>(ScratchBytes(shape)), std::byte{0});
    ASSIGN_OR_RETURN(Buffer memory, take(none.size()));
    if (!none.empty()) device_.Upload(memory.data(), none.data(), none.size());
    plan_scratch_.push_back(std::move(memory));
  }
  if (drafter_ != nullptr) {
    ASSIGN_OR_RETURN(drafts_, QueuedDraftStage::Create(device_, *drafter_, limits));
    ASSIGN_OR_RETURN(features_, take(FeatureBytes(*model_, drafter_, limits)));
  }
  device_.FinishLoading();
  return device_.status();
}

int64_t QueuedWorker::PageBytes(int group) const {
  return group < num_model_groups() ? model_->page_bytes(group)
                                    : drafter_->page_bytes(group - num_model_groups());
}

void QueuedWorker::ShareWith(Worker& first) {
  const auto& other = static_cast<QueuedWorker&>(first);
  shared_logits_ = As<float>(other.logits_);
  shared_last_tokens_ = As<int32_t>(other.last_tokens_);
  for (size_t side = 0; side < flights_.size(); ++side) {
    shared_results_[side] = other.flights_[side].results.data();
  }
  if (drafts_ != nullptr) drafts_->ShareWith(*other.drafts_);
}

// Kernels are loaded and libraries are set up at their first use, which a capture does not allow.
Status QueuedWorker::WarmUp() {
  const Shape shape{.num_tokens = 1, .num_rows = 1, .num_logits = 1};
  CountPadded(1);
  stage_.Begin(0);
  BatchArrays arrays = TakeArrays(shape);
  FillPadding(StepPlan(), shape, arrays);
  is_prompt_.assign(1, 0);
  PlanRows(arrays);
  stage_.Send(stream_);
  RunModel(MakeBatch(shape, arrays));
  device_.Record(flights_[0].done, stream_);
  device_.Synchronize(flights_[0].done);
  return device_.status();
}

void QueuedWorker::Run(const StepPlan& plan, StepResult& result) {
  const size_t side = num_run_++ % StepStage::kNumSides;
  Flight& flight = flights_[side];
  const StepPlan& own = OwnPart(plan);
  tables_.Apply(own);
  // Of all dp ranks: every one asks whether all rows can be replayed.
  sampler_.Apply(plan);
  for (const SlotStart& start : plan.starts) {
    prompt_lengths_[static_cast<size_t>(start.slot.value)] = start.prompt_length;
  }

  const Shape shape = ShapeOf(plan, own);
  CountRows(plan, shape);
  stage_.Begin(static_cast<int>(side));
  BatchArrays arrays = TakeArrays(shape);
  Staged<int32_t> late_slots = stage_.Take<int32_t>(static_cast<size_t>(own.num_tokens));
  FillArrays(own, arrays, late_slots);
  FillPadding(own, shape, arrays);
  if (shape.num_rows > 0) PlanRows(arrays);
  ops::StepInputsArgs inputs = {.num_tokens = own.num_tokens,
                                .late_slots = late_slots.device,
                                .last_tokens = shared_last_tokens_,
                                .token_ids = arrays.token_ids.device};
  PutPageEntries(own, inputs);
  ops::SampleRowsArgs draws;
  ops::StartCountsArgs starts;
  sampler_.Write(own, stage_, draws, starts, flight.sampled);
  for (size_t r = 0; r < plan_rows_.size(); ++r) flight.sampled.rows[r].plan_row = plan_rows_[r];
  draws.logits = As<float>(logits_);
  draws.state = {.last_tokens = As<int32_t>(last_tokens_), .counts = As<int32_t>(counts_)};
  starts.state = draws.state;
  SetResults(flight, draws);

  flight.queued_ns = NowNs();
  stage_.Send(stream_);
  if (starts.num_starts > 0) ops::StartCounts(stream_, starts);
  ops::PrepareStepInputs(stream_, inputs);
  CopyPages(own);
  models::ForwardBatch batch = MakeBatch(shape, arrays);
  flight.has_hidden = sampler_.WantsHidden(own);
  if (flight.has_hidden) batch.hidden = As<float>(hidden_);
  Forward(shape, batch);
  if (flight.has_hidden) {
    device_.Copy(stream_, flight.hidden.data(), hidden_.data(),
                 static_cast<size_t>(shape.num_logits) *
                     static_cast<size_t>(model_->facts().hidden_size) * sizeof(float));
  }
  if (own.num_masks > 0) SendMasks(own, side, draws);
  // The ranks' slices of the logits are there; and none is written again, nor a last token read,
  // before they have been sampled.
  group_.Barrier(stream_);
  if (draws.num_rows > 0 && group_.rank() == 0) ops::SampleRows(stream_, draws);
  group_.Barrier(stream_);
  if (drafts_ != nullptr) RunDrafter(own, side, result);
  device_.Copy(stream_, options_.place.expert_counts.data(), expert_counts_.data(),
               expert_counts_.size());
  device_.Record(flight.done, stream_);
}

void QueuedWorker::RunDrafter(const StepPlan& own, size_t side, StepResult& result) {
  const Flight& flight = flights_[side];
  device_.Record(flight.drawn, stream_);
  device_.Synchronize(flight.drawn);
  if (!device_.status().ok()) return;
  StepResult& drawn = group_.rank() == 0 ? result : drawn_;
  if (&drawn == &drawn_) {
    drawn_.rows.resize(result.rows.size());
    for (size_t r = 0; r < plan_rows_.size(); ++r) {
      drawn_.rows[static_cast<size_t>(plan_rows_[r])].Reset(own.rows[r].slot);
    }
  }
  ReadDraws(side, drawn);
  const auto first = static_cast<size_t>(num_model_groups());
  drafts_->Run(own, plan_rows_, drawn.rows, sampler_,
               {.page_tables = std::span(device_tables_).subspan(first),
                .features = features_.size() == 0 ? nullptr : As<float>(features_),
                .logits = shared_logits_},
               {.stream = stream_,
                .workspace = &workspace_,
                .group = &group_,
                .pools = std::span(pool_bases_).subspan(first)},
               side);
}

bool QueuedWorker::Done() {
  return device_.Reached(flights_[num_finished_ % StepStage::kNumSides].done);
}

void QueuedWorker::AwaitSteps() {
  device_.Record(awaited_, stream_);
  device_.Synchronize(awaited_);
}

void QueuedWorker::Finish(StepResult& result) {
  const size_t side = num_finished_++ % StepStage::kNumSides;
  const Flight& flight = flights_[side];
  device_.Synchronize(flight.done);
  if (options_.place.rank == 0) {
    const int64_t now = NowNs();
    result.device_start_ns = std::max(flight.queued_ns, last_finished_ns_);
    result.device_ns = now - result.device_start_ns;
    last_finished_ns_ = now;
  }
  if (Status status = device_.status(); !status.ok()) result.status = std::move(status);
  if (!result.status.ok() || group_.rank() != 0) return;
  if (drafts_ == nullptr) return ReadDraws(side, result);
  drafts_->Finish(side, result);
}

void QueuedWorker::ReadDraws(size_t side, StepResult& result) const {
  const Flight& flight = flights_[side];
  const auto max_logits = static_cast<size_t>(options_.limits.max_logits);
  const std::byte* base = shared_results_[side];
  const std::byte* top = base + TokenBytes(options_.limits.max_logits);
  ReadResults(
      flight.sampled, reinterpret_cast<const ops::SampledToken*>(base),
      reinterpret_cast<const int32_t*>(top),
      reinterpret_cast<const float*>(top + max_logits * ops::kMaxTopLogprobs * sizeof(int32_t)),
      result);
  if (flight.has_hidden) {
    AddHidden(flight.sampled, As<float>(flight.hidden), model_->facts().hidden_size, result);
  }
}

void QueuedWorker::SetResults(const Flight& flight, ops::SampleRowsArgs& args) const {
  const auto max_logits = static_cast<size_t>(options_.limits.max_logits);
  std::byte* top = flight.results.data() + TokenBytes(options_.limits.max_logits);
  args.results = As<ops::SampledToken>(flight.results);
  args.top_ids = reinterpret_cast<int32_t*>(top);
  args.top_logprobs =
      reinterpret_cast<float*>(top + max_logits * ops::kMaxTopLogprobs * sizeof(int32_t));
}

QueuedWorker::BatchArrays QueuedWorker::TakeArrays(const Shape& shape) {
  const auto tokens = static_cast<size_t>(shape.num_tokens);
  const auto rows = static_cast<size_t>(shape.num_rows);
  CHECK_LE(shape.num_rows, options_.limits.max_rows);
  CHECK_LE(shape.num_tokens, options_.limits.max_tokens);
  CHECK_LE(shape.num_logits, options_.limits.max_logits);
  BatchArrays arrays = {
      .token_ids = stage_.Take<int32_t>(tokens),
      .positions = stage_.Take<int32_t>(tokens),
      .q_begin = stage_.Take<int32_t>(rows + 1),
      .kv_len = stage_.Take<int32_t>(rows),
      .table_row = stage_.Take<int32_t>(rows),
      .logits_index = stage_.Take<int32_t>(static_cast<size_t>(shape.num_logits))};
  for (const ops::AttentionPlanShape& group : plan_shapes_) {
    const int64_t bytes = PlanBytes(group, shape.num_rows, shape.num_tokens);
    arrays.plans.push_back(stage_.Take<std::byte>(static_cast<size_t>(bytes)));
  }
  if (shape.replays) {
    arrays.window_begin = stage_.Take<int32_t>(rows);
    arrays.settled = stage_.Take<int32_t>(rows);
  }
  if (expert_counts_.size() > 0) arrays.num_unpadded = stage_.Take<int32_t>(1);
  return arrays;
}

void QueuedWorker::PlanRows(const BatchArrays& arrays) {
  for (size_t g = 0; g < plan_shapes_.size(); ++g) {
    const Staged<std::byte>& to = arrays.plans[g];
    if (to.host.empty()) continue;
    plans_[g] = ops::PlanAttention(
        plan_shapes_[g],
        {arrays.q_begin.host, arrays.kv_len.host, arrays.table_row.host, is_prompt_},
        to.host.data(), to.device, plan_scratch_[g].data());
  }
}

void QueuedWorker::PlanPadding(const Shape& shape, const BatchArrays& arrays) {
  std::vector<int32_t> q_begin;
  const std::vector<int32_t> kv_len(static_cast<size_t>(shape.num_rows),
                                    shape.long_row ? ops::kShortRowKeys + 1 : 1);
  for (int32_t row = 0; row <= shape.num_rows; ++row) q_begin.push_back(row);
  for (size_t g = 0; g < plan_shapes_.size(); ++g) {
    if (arrays.plans[g].host.empty()) continue;
    std::vector<std::byte> nobody_reads(arrays.plans[g].host.size());
    plans_[g] = ops::PlanAttention(plan_shapes_[g], {q_begin, kv_len, {}}, nobody_reads.data(),
                                   arrays.plans[g].device, plan_scratch_[g].data());
  }
}

// Takes every value from the host's table, so an entry that a plan changes twice is sent twice with
// its last value.
void QueuedWorker::PutPageEntries(const StepPlan& plan, ops::StepInputsArgs& inputs) {
  Staged<ops::PageEntry> entries = stage_.Take<ops::PageEntry>(plan.page_updates.size());
  for (size_t i = 0; i < plan.page_updates.size(); ++i) {
    const PageUpdate& update = plan.page_updates[i];
    const int32_t page = tables_.Pages(update.group, update.slot, update.index + 1).back();
    entries.host[i] = {.table = update.group,
                       .index = update.slot.value * options_.limits.max_slot_pages + update.index,
                       .page = std::max(page, kScratchPage.value)};
  }
  inputs.num_entries = static_cast<int32_t>(entries.host.size());
  inputs.entries = entries.device;
  for (size_t g = 0; g < device_tables_.size(); ++g) {
    inputs.tables[g] = As<int32_t>(device_tables_[g]);
  }
}

models::ForwardBatch QueuedWorker::MakeBatch(const Shape& shape, const BatchArrays& arrays) {
  for (size_t g = 0; g < rows_.size(); ++g) {
    rows_[g] = {.num_rows = shape.num_rows,
                .q_begin = arrays.q_begin.device,
                .kv_len = arrays.kv_len.device,
                .page_table = As<int32_t>(device_tables_[g]),
                .page_table_stride = options_.limits.max_slot_pages,
                .table_row = arrays.table_row.device,
                .plan = plans_[g]};
  }
  num_unpadded_ = arrays.num_unpadded.device;
  return {.num_tokens = shape.num_tokens,
          .token_ids = arrays.token_ids.device,
          .positions = arrays.positions.device,
          .rows = rows_,
          .window_begin = arrays.window_begin.device,
          .settled = arrays.settled.device,
          .num_logits = shape.num_logits,
          .logits_index = arrays.logits_index.device,
          .logits = shared_logits_,
          .tokens_per_rank = tokens_per_rank_,
          .logits_per_rank = logits_per_rank_,
          .features = features_.size() == 0 ? nullptr : As<float>(features_)};
}

void QueuedWorker::SendMasks(const StepPlan& plan, size_t side, ops::SampleRowsArgs& draws) {
  const size_t bytes = MaskBytes(model_->facts().vocab_size);
  std::byte* host = host_masks_[side].data();
  for (const StepRow& row : plan.rows) {
    if (row.mask < 0) continue;
    const auto index = static_cast<size_t>(row.mask);
    const size_t count = static_cast<size_t>(row.num_drafts) + 1;
    std::memcpy(host + index * bytes, plan.masks->Await(index), count * bytes);
  }
  device_.Copy(stream_, masks_.data(), host, static_cast<size_t>(plan.num_masks) * bytes);
  draws.bitmasks = As<uint32_t>(masks_);
}

void QueuedWorker::CopyPages(const StepPlan& plan) {
  for (const PageCopy& copy : plan.copies) {
    const int64_t bytes = PageBytes(copy.group);
    std::byte* base = pool_bases_[static_cast<size_t>(copy.group)];
    device_.Copy(stream_, base + copy.to.value * bytes, base + copy.from.value * bytes,
                 static_cast<size_t>(bytes));
  }
}

void QueuedWorker::Forward(const Shape& shape, const models::ForwardBatch& batch) {
  if (shape.captured) {
    const Graph& graph = graphs_[GraphOf(shape)];
    if (graph.handle != nullptr) return device_.Launch(graph, stream_);
  }
  RunModel(batch);
}

void QueuedWorker::RunModel(const models::ForwardBatch& batch) {
  const std::span<std::byte* const> pools(pool_bases_);
  model_->Forward(batch, {.stream = stream_,
                          .workspace = &workspace_,
                          .group = &group_,
                          .exchange = options_.place.exchange,
                          .placements = options_.place.placements,
                          .expert_counts = Span<int64_t>(expert_counts_),
                          .num_unpadded = num_unpadded_,
                          .pools = pools.first(static_cast<size_t>(num_model_groups()))});
}

size_t QueuedWorker::GraphOf(const Shape& shape) const {
  if (shape.long_row) return graph_rows_.size();
  return static_cast<size_t>(std::ranges::lower_bound(graph_rows_, shape.num_rows) -
                             graph_rows_.begin());
}

// The largest first: they serve the most load.
bool QueuedWorker::UseIdleTime() {
  if (device_.kind() == DeviceKind::kCpu || num_captured_ == graphs_.size()) return false;
  const size_t sizes = graph_rows_.size();
  const size_t graph = num_captured_ < sizes ? sizes - 1 - num_captured_ : sizes;
  graphs_[graph] = Capture(graph);
  return ++num_captured_ < graphs_.size();
}

void QueuedWorker::UseModel(models::Model& model) {
  CHECK(drafter_ == nullptr) << "the drafter reads the model's features";
  model_ = &model;
  for (Graph& graph : graphs_) device_.Discard(std::exchange(graph, Graph{}));
  num_captured_ = 0;
}

Graph QueuedWorker::Capture(size_t graph) {
  const bool long_row = graph == graph_rows_.size();
  const int32_t num_rows = long_row ? 1 : graph_rows_[graph];
  const Shape shape{num_rows, num_rows, num_rows, true, false, long_row};
  CountPadded(num_rows);
  // Addresses alone matter; nothing is written or sent.
  stage_.Begin(0);
  const BatchArrays arrays = TakeArrays(shape);
  PlanPadding(shape, arrays);
  const models::ForwardBatch batch = MakeBatch(shape, arrays);
  device_.BeginCapture(stream_);
  RunModel(batch);
  return device_.EndCapture(stream_);
}

}  // namespace hayate::exec
