#include "exec/queued_draft_stage.h"

#include <algorithm>

namespace hayate::exec {
namespace {

template <typename T>
T* As(const Buffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

// Guesses of a step, over all rows.
size_t MaxGuesses(const models::DraftModel& drafter, const StepLimits& limits) {
  return static_cast<size_t>(drafter.max_drafts()) * static_cast<size_t>(limits.max_rows);
}

size_t StageBytes(const models::DraftModel& drafter, const StepLimits& limits) {
  const size_t ints =
      4 * static_cast<size_t>(limits.max_tokens) + 5 * (static_cast<size_t>(limits.max_rows) + 1);
  constexpr size_t kPadding = 10 * 256;
  return ints * sizeof(int32_t) +
         SamplerStage::MaxGuessBytes(limits.max_rows, drafter.max_drafts()) + kPadding;
}

}  // namespace

int64_t QueuedDraftStage::FixedBytes(const models::DraftModel& drafter, const StepLimits& limits) {
  constexpr size_t kRounding = 8 * 512;
  return static_cast<int64_t>(
      StageBytes(drafter, limits) + static_cast<size_t>(limits.max_rows) * sizeof(int32_t) +
      MaxGuesses(drafter, limits) * (sizeof(ops::SampledToken) + sizeof(float)) + kRounding);
}

QueuedDraftStage::QueuedDraftStage(Device& device, models::DraftModel& drafter,
                                   const StepLimits& limits)
    : device_(device),
      drafter_(drafter),
      limits_(limits),
      last_tokens_(static_cast<size_t>(limits.max_rows)),
      rows_(drafter.cache_groups().size()) {}

Result<std::unique_ptr<QueuedDraftStage>> QueuedDraftStage::Create(Device& device,
                                                                   models::DraftModel& drafter,
                                                                   const StepLimits& limits) {
  auto stage = std::unique_ptr<QueuedDraftStage>(new QueuedDraftStage(device, drafter, limits));
  RETURN_IF_ERROR(stage->Allocate());
  return stage;
}

Status QueuedDraftStage::Allocate() {
  const size_t guesses = MaxGuesses(drafter_, limits_);
  const size_t token_bytes = guesses * sizeof(ops::SampledToken);
  const size_t confidence_bytes = guesses * sizeof(float);
  const size_t row_bytes = static_cast<size_t>(limits_.max_rows) * sizeof(int32_t);
  ASSIGN_OR_RETURN(stage_, StepStage::Create(device_, StageBytes(drafter_, limits_)));
  ASSIGN_OR_RETURN(guesses_, Buffer::Allocate(device_, row_bytes));
  ASSIGN_OR_RETURN(tokens_, Buffer::Allocate(device_, token_bytes));
  ASSIGN_OR_RETURN(confidences_, Buffer::Allocate(device_, confidence_bytes));
  for (Flight& flight : flights_) {
    ASSIGN_OR_RETURN(flight.tokens, Buffer::Allocate(device_, token_bytes, MemoryKind::kPinned));
    ASSIGN_OR_RETURN(flight.confidences,
                     Buffer::Allocate(device_, confidence_bytes, MemoryKind::kPinned));
  }
  return OkStatus();
}

void QueuedDraftStage::ShareWith(const QueuedDraftStage& first) {
  shared_guesses_ = As<int32_t>(first.guesses_);
}

void QueuedDraftStage::Run(const StepPlan& own, std::span<const int32_t> plan_rows,
                           std::span<const RowResult> results, SamplerStage& sampler,
                           const Inputs& inputs, const models::ForwardContext& context,
                           size_t side) {
  Flight& flight = flights_[side];
  Collect(own, plan_rows, results);
  flight.plan_rows.clear();
  for (const int32_t row : committed_.proposal_plan_rows) {
    flight.plan_rows.push_back(plan_rows[static_cast<size_t>(row)]);
  }
  if (committed_.num_rows() == 0) return;
  stage_.Begin(static_cast<int>(side));
  const models::DraftBatch batch = StageBatch(own, inputs);
  const int32_t* anchors = stage_.Put<int32_t>(committed_.anchors).device;
  ops::SampleRowsArgs draws;
  if (batch.num_proposals > 0) {
    sampler.WriteGuesses(slots_, first_positions_, drafter_.max_drafts(), stage_, draws);
  }
  stage_.Send(context.stream);
  // The drafter keeps there what its guesses need.
  const size_t mark = context.workspace->mark();
  drafter_.Advance(batch, context);
  if (batch.num_proposals > 0) Propose(anchors, draws, inputs, context, flight);
  context.workspace->ResetTo(mark);
}

void QueuedDraftStage::Collect(const StepPlan& own, std::span<const int32_t> plan_rows,
                               std::span<const RowResult> results) {
  committed_.Clear();
  slots_.clear();
  first_positions_.clear();
  int32_t first_feature = 0;
  for (size_t r = 0; r < own.rows.size(); ++r) {
    const StepRow& row = own.rows[r];
    const RowResult& result = results[static_cast<size_t>(plan_rows[r])];
    TokenId& last = last_tokens_[static_cast<size_t>(row.slot.value)];
    if (row.first_token == kLateToken) {
      row_tokens_.assign(1, last);
    } else {
      const auto first = own.tokens.begin() + row.first_token;
      row_tokens_.assign(first, first + row.num_tokens());
    }
    committed_.Add(static_cast<int32_t>(r), row, row_tokens_, first_feature, result);
    if (!result.tokens.empty()) last = result.tokens.back();
    first_feature += row.num_tokens();
  }
  for (size_t n = 0; n < committed_.num_proposals(); ++n) {
    slots_.push_back(own.rows[static_cast<size_t>(committed_.proposal_plan_rows[n])].slot);
    // The anchor is the token at position kv_len.
    const auto row = static_cast<size_t>(committed_.proposal_rows[n]);
    first_positions_.push_back(committed_.kv_len[row] + 1);
  }
}

models::DraftBatch QueuedDraftStage::StageBatch(const StepPlan& own, const Inputs& inputs) {
  const auto put = [this](const std::vector<int32_t>& values) {
    return stage_.Put<int32_t>(values).device;
  };
  const Staged<int32_t> table_row = stage_.Take<int32_t>(committed_.plan_rows.size());
  for (size_t r = 0; r < committed_.plan_rows.size(); ++r) {
    table_row.host[r] = own.rows[static_cast<size_t>(committed_.plan_rows[r])].slot.value;
  }
  const int32_t *q_begin = put(committed_.q_begin), *kv_len = put(committed_.kv_len);
  for (size_t g = 0; g < rows_.size(); ++g) {
    rows_[g] = {.num_rows = committed_.num_rows(),
                .q_begin = q_begin,
                .kv_len = kv_len,
                .page_table = As<int32_t>(inputs.page_tables[g]),
                .page_table_stride = limits_.max_slot_pages,
                .table_row = table_row.device};
  }
  return {.num_tokens = committed_.num_tokens(),
          .token_ids = put(committed_.token_ids),
          .next_ids = put(committed_.next_ids),
          .positions = put(committed_.positions),
          .feature_rows = put(committed_.feature_rows),
          .features = inputs.features,
          .rows = rows_,
          .num_proposals = static_cast<int32_t>(committed_.num_proposals()),
          .proposal_rows = put(committed_.proposal_rows)};
}

void QueuedDraftStage::Propose(const int32_t* anchors, ops::SampleRowsArgs draws,
                               const Inputs& inputs, const models::ForwardContext& context,
                               Flight& flight) {
  const size_t count = committed_.num_proposals();
  const ops::SamplerRow* rows = draws.rows;
  draws.logits = inputs.logits;
  draws.state.last_tokens = As<int32_t>(guesses_);
  const bool draws_here = context.group->rank() == 0;
  for (int32_t i = 0; i < drafter_.max_drafts(); ++i) {
    const size_t at = static_cast<size_t>(i) * count;
    drafter_.Next(i, i == 0 ? anchors : shared_guesses_, inputs.logits,
                  As<float>(confidences_) + at, context);
    draws.rows = rows + at;
    draws.results = As<ops::SampledToken>(tokens_) + at;
    // As between the target's logits and draws.
    context.group->Barrier(context.stream);
    if (draws_here) ops::SampleRows(context.stream, draws);
    context.group->Barrier(context.stream);
  }
  if (!draws_here) return;
  const size_t all = static_cast<size_t>(drafter_.max_drafts()) * count;
  device_.Copy(context.stream, flight.tokens.data(), tokens_.data(),
               all * sizeof(ops::SampledToken));
  if (drafter_.has_confidence()) {
    device_.Copy(context.stream, flight.confidences.data(), confidences_.data(),
                 all * sizeof(float));
  }
}

void QueuedDraftStage::Finish(size_t side, StepResult& result) const {
  const Flight& flight = flights_[side];
  const size_t count = flight.plan_rows.size();
  for (size_t n = 0; n < count; ++n) {
    RowResult& row = result.rows[static_cast<size_t>(flight.plan_rows[n])];
    for (int32_t i = 0; i < drafter_.max_drafts(); ++i) {
      const size_t at = static_cast<size_t>(i) * count + n;
      row.drafts.push_back(As<ops::SampledToken>(flight.tokens)[at].token);
      if (!drafter_.has_confidence()) continue;
      row.draft_confidences.push_back(As<float>(flight.confidences)[at]);
    }
  }
}

}  // namespace hayate::exec
