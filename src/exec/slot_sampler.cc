#include "exec/slot_sampler.h"

#include <algorithm>
#include <utility>

#include "base/align.h"
#include "spec/verify.h"

namespace hayate::exec {

SlotSampler::SlotSampler(const Options& options) : options_(options) {
  slots_.resize(static_cast<size_t>(CeilDiv(options.max_slots, options.num_ranks)));
  wants_hidden_.resize(static_cast<size_t>(options.max_slots));
}

void SlotSampler::Apply(const StepPlan& plan) {
  for (const SlotStart& start : plan.starts) {
    wants_hidden_[static_cast<size_t>(start.slot.value)] = start.logprobs.hidden;
    if (!Owns(start.slot)) continue;
    Slot& slot = SlotOf(start.slot);
    slot.sampling = start.sampling;
    slot.logprobs = start.logprobs;
    slot.prompt_length = start.prompt_length;
    slot.output_counts.reset();
    if (!start.sampling.has_penalties()) continue;
    slot.output_counts = std::make_unique<int32_t[]>(static_cast<size_t>(options_.vocab_size));
    for (const TokenId token : start.outputs) ++slot.output_counts[static_cast<size_t>(token)];
  }
}

ops::SamplingRow SlotSampler::MakeRow(Slot& slot, int32_t position, float* logits) const {
  const SamplingParams& params = slot.sampling;
  ops::SamplingRow out;
  out.logits = logits;
  out.temperature = params.greedy() ? 0.0f : params.temperature;
  out.top_k = params.top_k;
  out.top_p = params.top_p;
  out.min_p = params.min_p;
  out.frequency_penalty = params.frequency_penalty;
  out.presence_penalty = params.presence_penalty;
  out.repetition_penalty = params.repetition_penalty;
  out.output_counts = slot.output_counts.get();
  out.bias = params.logit_bias;
  const int32_t num_generated = position - slot.prompt_length;
  if (num_generated < params.min_new_tokens) out.banned = params.stop_token_ids;
  out.seed = params.seed;
  out.position = static_cast<uint64_t>(position);
  out.num_logprobs = slot.logprobs.enabled ? slot.logprobs.num_top : -1;
  return out;
}

void SlotSampler::Run(Stream stream, Workspace& workspace, const StepPlan& plan,
                      const StagedStep& staged, std::span<RowResult> results,
                      int32_t* last_tokens) {
  const auto vocab = static_cast<int64_t>(options_.vocab_size);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    if (!Owns(row.slot)) continue;
    const RowLogits& where = staged.logits_of(i);
    float* const logits = staged.batch().logits;
    if (staged.batch().hidden != nullptr && SlotOf(row.slot).logprobs.hidden) {
      AddHidden(staged.batch(), where, results[i]);
    }
    const bool scores = where.score_count > 0 && !SlotOf(row.slot).logprobs.hidden;
    if (scores) Score(SlotOf(row.slot), plan, where, logits, results[i]);
    if (where.sample < 0) continue;
    last_tokens[row.slot.value] =
        Draw(stream, workspace, plan, row, logits + where.sample * vocab, results[i]);
  }
}

TokenId SlotSampler::Draw(Stream stream, Workspace& workspace, const StepPlan& plan,
                          const StepRow& row, float* logits, RowResult& result) {
  Slot& slot = SlotOf(row.slot);
  const auto vocab = static_cast<int64_t>(options_.vocab_size);
  for (int32_t i = 0;; ++i) {
    const int32_t position = row.end - row.num_drafts + i;
    ops::SamplingRow sampling = MakeRow(slot, position, logits + i * vocab);
    auto asked = ScoreAsked(slot, logits + i * vocab);
    if (row.mask >= 0) sampling.bitmask = plan.masks->Await(static_cast<size_t>(row.mask + i));
    ops::SamplingResult drawn;
    ops::Sample(stream, workspace, options_.vocab_size, {&sampling, 1}, {&drawn, 1});
    result.bad_logits = drawn.bad_logits;
    if (drawn.bad_logits) return drawn.token;
    const spec::Verdict verdict = spec::Verify(plan, row, i, drawn.token);
    result.tokens.push_back(verdict.token);
    if (slot.output_counts) ++slot.output_counts[static_cast<size_t>(verdict.token)];
    if (slot.logprobs.enabled) {
      result.logprobs.push_back(
          {verdict.token, drawn.logprob, drawn.rank, std::move(drawn.top), std::move(asked)});
    }
    if (!verdict.goes_on) return verdict.token;
  }
}

TokenId SlotSampler::DrawGuess(Stream stream, Workspace& workspace, SlotId slot, int32_t position,
                               float* logits) {
  ops::SamplingRow sampling = MakeRow(SlotOf(slot), position, logits);
  sampling.num_logprobs = -1;
  ops::SamplingResult drawn;
  ops::Sample(stream, workspace, options_.vocab_size, {&sampling, 1}, {&drawn, 1});
  return drawn.token;
}

void SlotSampler::Score(const Slot& slot, const StepPlan& plan, const RowLogits& where,
                        const float* logits, RowResult& result) const {
  const auto vocab = static_cast<size_t>(options_.vocab_size);
  for (int32_t i = 0; i < where.score_count; ++i) {
    const TokenId token = plan.tokens[static_cast<size_t>(where.score_token + i)];
    const std::span<const float> row(logits + static_cast<size_t>(where.score_begin + i) * vocab,
                                     vocab);
    ops::SamplingResult scored = ops::ScoreToken(row, token, slot.logprobs.num_top);
    result.prompt_logprobs.push_back(
        {token, scored.logprob, scored.rank, std::move(scored.top), ScoreAsked(slot, row.data())});
  }
}

bool SlotSampler::WantsHidden(const StepPlan& plan) const {
  return std::ranges::any_of(plan.rows, [&](const StepRow& row) {
    return wants_hidden_[static_cast<size_t>(row.slot.value)] != 0;
  });
}

void SlotSampler::AddHidden(const models::ForwardBatch& batch, const RowLogits& where,
                            RowResult& result) const {
  const auto width = static_cast<size_t>(options_.hidden_size);
  result.hidden.assign(width, 0.0f);
  const auto add = [&](int32_t row) {
    const float* from = batch.hidden + static_cast<size_t>(row) * width;
    for (size_t i = 0; i < width; ++i) result.hidden[i] += from[i];
  };
  for (int32_t i = 0; i < where.score_count; ++i) add(where.score_begin + i);
  if (where.sample >= 0) add(where.sample);
}

std::vector<std::pair<TokenId, float>> SlotSampler::ScoreAsked(const Slot& slot,
                                                               const float* logits) const {
  const std::vector<TokenId>& ids = slot.logprobs.token_ids;
  std::vector<std::pair<TokenId, float>> asked;
  if (!slot.logprobs.enabled) return asked;
  const std::span<const float> row(logits, static_cast<size_t>(options_.vocab_size));
  for (const TokenId id : ids) asked.emplace_back(id, ops::ScoreToken(row, id, 0).logprob);
  return asked;
}

}  // namespace hayate::exec
