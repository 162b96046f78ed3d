#include "exec/rank_worker.h"

#include <algorithm>
#include <utility>

namespace hayate::exec {

Result<std::unique_ptr<RankWorker>> RankWorker::Create(Device& device, models::Model& model,
                                                       comm::Group& group, const StepLimits& limits,
                                                       std::span<const int32_t> pool_pages,
                                                       SharedStep shared, ReplicaPlace place) {
  const int64_t forward_bytes = model.workspace_bytes(limits.max_tokens, limits.max_logits);
  const int64_t sample_bytes = ops::SampleWorkspaceBytes(model.facts().vocab_size);
  ASSIGN_OR_RETURN(
      Buffer workspace,
      Buffer::Allocate(device, static_cast<size_t>(std::max(forward_bytes, sample_bytes))));
  auto worker = std::unique_ptr<RankWorker>(new RankWorker(
      model, group, limits, shared, place, device.NewStream(), std::move(workspace)));
  for (size_t g = 0; g < pool_pages.size(); ++g) {
    const int64_t bytes = pool_pages[g] * model.page_bytes(static_cast<int>(g));
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

RankWorker::RankWorker(models::Model& model, comm::Group& group, const StepLimits& limits,
                       SharedStep shared, const ReplicaPlace& place, Stream stream,
                       Buffer workspace)
    : model_(model),
      group_(group),
      shared_(shared),
      place_(place),
      dp_rank_(place.layout.dp_rank(place.rank)),
      stream_(stream),
      workspace_(std::move(workspace)),
      tables_(limits.num_groups, limits.max_rows, limits.max_slot_pages),
      staged_(limits, place.layout, dp_rank_),
      // Slots of a dp rank take turns among its attention group.
      sampler_({.rank = dp_rank_ + place.layout.dp_size() * group.rank(),
                .num_ranks = place.layout.dp_size() * group.size(),
                .max_slots = limits.max_rows,
                .vocab_size = model.facts().vocab_size,
                .hidden_size = model.facts().hidden_size}) {}

void RankWorker::Run(const StepPlan& plan, StepResult& result) {
  tables_.Apply(plan);
  sampler_.Apply(plan);
  CopyPages(plan);
  staged_.Build(plan, tables_, shared_.last_tokens, shared_.logits);
  staged_.SetHidden(sampler_.WantsHidden(plan) ? reinterpret_cast<float*>(hidden_.data())
                                               : nullptr);
  model_.Forward(staged_.batch(), Context());
  // Each rank wrote its slice of the vocabulary; a sampler needs the whole row.
  group_.Barrier(stream_);
  if (!Failed()) {
    sampler_.Run(stream_, workspace_, plan, staged_, result.rows, shared_.last_tokens);
  }
  // The next step reads last_tokens and writes logits.
  group_.Barrier(stream_);
  if (place_.all != nullptr && !Failed()) place_.all->Barrier(stream_);
  (void)Failed();
}

models::ForwardContext RankWorker::Context() {
  return {.stream = stream_,
          .workspace = &workspace_,
          .group = &group_,
          .exchange = place_.exchange,
          .placements = place_.placements,
          .expert_counts = place_.expert_counts,
          .pools = pool_bases_};
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
    const int64_t bytes = model_.page_bytes(copy.group);
    std::byte* base = pool_bases_[static_cast<size_t>(copy.group)];
    stream_.device->Copy(stream_, base + copy.to.value * bytes, base + copy.from.value * bytes,
                         static_cast<size_t>(bytes));
  }
}

}  // namespace hayate::exec
