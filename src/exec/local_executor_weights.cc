// Of LocalExecutor: how weights are loaded, and how others take their place.

#include <utility>

#include "exec/local_executor_rank.h"

namespace hayate::exec {

models::LoadOptions LocalExecutor::LoadOptionsOf(const Rank& rank) const {
  models::LoadOptions load{.rank = layout_of_ranks_.attention_rank(rank.index),
                           .num_ranks = layout_of_ranks_.attention_size(),
                           .experts = placed_experts_.layers,
                           .expert_rank = rank.index,
                           .device = rank.places ? rank.places.get() : rank.device.get(),
                           .precision = options_.precision,
                           .kv_dtype = options_.kv_dtype,
                           .sum_order = options_.sum_order,
                           .page_tokens = options_.page_tokens,
                           .max_context = options_.max_context,
                           .max_drafts = options_.max_drafts,
                           .window_reuse = options_.window_reuse,
                           .draft = options_.draft,
                           .draft_checkpoint = options_.draft_checkpoint};
  return load;
}

Status LocalExecutor::LoadRank(Rank& rank, const weights::Checkpoint& checkpoint) const {
  if (replaces_in_place() && CheckReplaceable().ok()) {
    rank.places = std::make_unique<WeightPlaces>(*rank.device);
  }
  models::LoadOptions load = LoadOptionsOf(rank);
  if (rank.index == 0) load.progress = options_.progress;
  ASSIGN_OR_RETURN(rank.model, models::LoadModel(checkpoint, load));
  if (rank.places != nullptr) RETURN_IF_ERROR(rank.places->Keep());
  if (options_.draft != models::DraftKind::kNone) {
    load.progress = nullptr;
    load.max_context = rank.model->facts().max_context;
    const bool own = options_.draft_checkpoint != nullptr;
    ASSIGN_OR_RETURN(
        rank.drafter,
        models::LoadDraftModel(own ? *options_.draft_checkpoint : checkpoint, load, *rank.model));
  }
  rank.device->FinishLoading();
  return rank.device->status();
}

Status LocalExecutor::CheckReplaceable() const {
  if (layout_of_ranks_.exchanges()) {
    return Status(ErrorCode::kUnsupported,
                  "weights do not change where rows travel to experts that may move");
  }
  if (options_.draft != models::DraftKind::kNone) {
    return Status(ErrorCode::kUnsupported,
                  "weights do not change under a draft model, which guesses as the old ones do");
  }
  return OkStatus();
}

Status LocalExecutor::ReplaceWeights(const weights::Checkpoint& checkpoint) {
  RETURN_IF_ERROR(CheckReplaceable());
  if (replaces_in_place()) RETURN_IF_ERROR(CheckSameTensors(*served_, checkpoint));
  const uint64_t step = submitted_.load(std::memory_order_relaxed);
  CHECK_EQ(step, num_taken_) << "a step is in flight";
  replacement_ = std::make_shared<WeightReplacement>(checkpoint, options_.num_ranks);
  submitted_.store(step + 1, std::memory_order_release);
  submitted_.notify_all();
  AwaitCount(ranks_[0]->completed, step + 1);
  ++num_taken_;
  Status outcome = replacement_->outcome();
  if (outcome.ok()) served_ = &checkpoint;
  replacement_.reset();
  return outcome;
}

void LocalExecutor::ReplaceOnRank(Rank& rank) {
  models::LoadOptions load = LoadOptionsOf(rank);
  load.max_context = rank.model->facts().max_context;
  // The engine's thread lets go of it as soon as rank 0 has left.
  const std::shared_ptr<WeightReplacement> replacement = replacement_;
  auto model = rank.places == nullptr ? replacement->Load(rank.index, load, *rank.model)
                                      : replacement->LoadInPlace(rank.index, load, *rank.model,
                                                                 *served_, *rank.places);
  if (model != nullptr) {
    rank.worker->UseModel(*model);
    rank.model = std::move(model);
    if (ranks_share_a_gpu()) CaptureAll(rank);
  }
  replacement->Leave();
}

}  // namespace hayate::exec
