#include "exec/rank_worker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hayate::exec {

namespace {

// The model's batch has its own groups alone.
StepLimits WithGroups(StepLimits limits, int num_groups) {
  limits.num_groups = num_groups;
  return limits;
}

}  // namespace

Result<std::unique_ptr<RankWorker>> RankWorker::Create(Device& device, models::Model& model,
                                                       comm::Group& group, const StepLimits& limits,
                                                       std::span<const int32_t> pool_pages,
                                                       SharedStep shared, ReplicaPlace place,
                                                       models::DraftModel* drafter) {
  const int64_t forward_bytes = model.workspace_bytes(limits.max_tokens, limits.max_logits);
  int64_t sample_bytes = ops::SampleWorkspaceBytes(model.facts().vocab_size);
  // Guesses are drawn while the drafter keeps what its next ones need.
  if (drafter != nullptr) {
    sample_bytes += drafter->workspace_bytes(limits.max_tokens, limits.max_rows);
  }
  ASSIGN_OR_RETURN(
      Buffer workspace,
      Buffer::Allocate(device, static_cast<size_t>(std::max(forward_bytes, sample_bytes))));
  auto worker = std::unique_ptr<RankWorker>(new RankWorker(
      model, group, limits, shared, place, device.NewStream(), std::move(workspace)));
  if (drafter != nullptr) RETURN_IF_ERROR(worker->AddDrafter(device, *drafter, limits));
  for (size_t g = 0; g < pool_pages.size(); ++g) {
    const int64_t bytes = pool_pages[g] * worker->PageBytes(static_cast<int>(g));
    ASSIGN_OR_RETURN(Buffer pool, Buffer::Allocate(device, static_cast<size_t>(bytes)));
    worker->pool_bases_.push_back(pool.data());
    worker->pools_.push_back(std::move(pool));
  }
  if (model.gives_hidden()) {
    const int64_t hidden_floats = int64_t{limits.max_logits} * model.facts().hidden_size;
    ASSIGN_OR_RETURN(worker->hidden_,
                     Buffer::Allocate(device, static_cast<size_t>(hidden_floats) * sizeof(float)));
  }
  return worker;
}

Status RankWorker::AddDrafter(Device& device, models::DraftModel& drafter,
                              const StepLimits& limits) {
  drafter_ = &drafter;
  drafts_.emplace(DraftStage::Parts{.drafter = &drafter,
                                    .group = &group_,
                                    .sampler = &sampler_,
                                    .tokens = shared_.guesses,
                                    .first_group = num_model_groups()},
                  limits);
  const int64_t bytes =
      limits.max_tokens * model_->feature_width() * static_cast<int64_t>(sizeof(float));
  ASSIGN_OR_RETURN(features_, Buffer::Allocate(device, static_cast<size_t>(bytes)));
  return OkStatus();
}

int64_t RankWorker::PageBytes(int group) const {
  return group < num_model_groups() ? model_->page_bytes(group)
                                    : drafter_->page_bytes(group - num_model_groups());
}

RankWorker::RankWorker(models::Model& model, comm::Group& group, const StepLimits& limits,
                       SharedStep shared, const ReplicaPlace& place, Stream stream,
                       Buffer workspace)
    : model_(&model),
      group_(group),
      shared_(shared),
      place_(place),
      dp_rank_(place.layout.dp_rank(place.rank)),
      stream_(stream),
      workspace_(std::move(workspace)),
      tables_(limits.num_groups, limits.max_rows, limits.max_slot_pages),
      staged_(WithGroups(limits, num_model_groups()), place.layout, dp_rank_),
      // Slots of a dp rank take turns among its attention group.
      sampler_({.rank = dp_rank_ + place.layout.dp_size() * group.rank(),
                .num_ranks = place.layout.dp_size() * group.size(),
                .max_slots = limits.max_rows,
                .vocab_size = model.facts().vocab_size,
                .hidden_size = model.facts().hidden_size}) {}

void RankWorker::UseModel(models::Model& model) {
  CHECK(drafter_ == nullptr) << "the drafter reads the model's features";
  model_ = &model;
}

void RankWorker::Run(const StepPlan& plan, StepResult& result) {
  tables_.Apply(plan);
  sampler_.Apply(plan);
  CopyPages(plan);
  staged_.Build(plan, tables_, shared_.last_tokens, shared_.logits);
  staged_.SetHidden(sampler_.WantsHidden(plan) ? reinterpret_cast<float*>(hidden_.data())
                                               : nullptr);
  models::ForwardBatch batch = staged_.batch();
  if (features_.size() > 0) batch.features = reinterpret_cast<float*>(features_.data());
  const std::span<std::byte* const> pools(pool_bases_);
  model_->Forward(batch, Context());
  // Each rank wrote its slice of the vocabulary; a sampler needs the whole row.
  group_.Barrier(stream_);
  if (!Failed()) {
    sampler_.Run(stream_, workspace_, plan, staged_, result.rows, shared_.last_tokens);
  }
  // The next step reads last_tokens and writes logits.
  group_.Barrier(stream_);
  if (drafts_ && !Failed()) {
    drafts_->Run(plan, staged_, tables_, batch.features,
                 {.stream = stream_,
                  .workspace = &workspace_,
                  .group = &group_,
                  .pools = pools.subspan(static_cast<size_t>(num_model_groups()))},
                 result.rows);
    group_.Barrier(stream_);
  }
  if (place_.all != nullptr && !Failed()) place_.all->Barrier(stream_);
  (void)Failed();
}

models::ForwardContext RankWorker::Context() {
  const std::span<std::byte* const> pools(pool_bases_);
  return {.stream = stream_,
          .workspace = &workspace_,
          .group = &group_,
          .exchange = place_.exchange,
          .placements = place_.placements,
          .expert_counts = place_.expert_counts,
          .pools = pools.first(static_cast<size_t>(num_model_groups()))};
}

bool RankWorker::Failed() {
  if (place_.all == nullptr) return group_.poisoned();
  if (!group_.poisoned() && !place_.all->poisoned()) return false;
  group_.Poison();
  place_.all->Poison();
  return true;
}

void RankWorker::CopyPages(const StepPlan& plan) {
  for (const PageCopy& copy : plan.copies) {
    if (copy.dp_rank != dp_rank_) continue;
    const int64_t bytes = PageBytes(copy.group);
    std::byte* base = pool_bases_[static_cast<size_t>(copy.group)];
    stream_.device->Copy(stream_, base + copy.to.value * bytes, base + copy.from.value * bytes,
                         static_cast<size_t>(bytes));
  }
}

}  // namespace hayate::exec
