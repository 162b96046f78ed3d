#include "exec/sampler_stage.h"

#include <algorithm>

#include "base/check.h"
#include "spec/verify.h"

namespace hayate::exec {
namespace {

// Of a slot's bias and banned ids.
constexpr size_t kListBytes = SamplingParams::kMaxLogitBias * (sizeof(int32_t) + sizeof(float)) +
                              SamplingParams::kMaxStopTokenIds * sizeof(int32_t);
constexpr size_t kPadding = 8 * 256;

}  // namespace

SamplerStage::SamplerStage(int32_t max_slots, int32_t vocab_size)
    : vocab_size_(vocab_size), slots_(static_cast<size_t>(max_slots)) {}

size_t SamplerStage::MaxBytes(int32_t max_slots, int32_t max_logits, int64_t max_outputs) {
  const auto slots = static_cast<size_t>(max_slots);
  return slots * (kListBytes + sizeof(ops::CountsStart)) +
         static_cast<size_t>(MaxRows(max_logits)) * sizeof(ops::SamplerRow) +
         static_cast<size_t>(max_outputs) * sizeof(int32_t) + kPadding;
}

void SamplerStage::Apply(const StepPlan& plan) {
  for (const SlotStart& start : plan.starts) {
    slots_[static_cast<size_t>(start.slot.value)] = {start.sampling, start.logprobs,
                                                     start.prompt_length};
  }
}

bool SamplerStage::WantsHidden(const StepPlan& plan) const {
  return std::ranges::any_of(plan.rows, [&](const StepRow& row) {
    return slots_[static_cast<size_t>(row.slot.value)].logprobs.hidden;
  });
}

void SamplerStage::Write(const StepPlan& plan, StepStage& stage, ops::SampleRowsArgs& args,
                         ops::StartCountsArgs& starts, SampledStep& step) {
  ClearLists();
  step.rows.clear();
  step.drafts.clear();
  for (const StepRow& row : plan.rows) AddRow(plan, row, step);
  AddAsked(plan, step);
  args.kernel = ops::SamplerKernelFor(rows_);
  args.num_rows = static_cast<int32_t>(rows_.size());
  PutLists(stage, args);
  WriteStarts(plan, stage, starts);
}

void SamplerStage::ClearLists() {
  rows_.clear();
  bias_ids_.clear();
  bias_values_.clear();
  banned_.clear();
}

size_t SamplerStage::MaxGuessBytes(int32_t max_slots, int32_t max_guesses) {
  const auto slots = static_cast<size_t>(max_slots);
  return slots * (kListBytes + static_cast<size_t>(max_guesses) * sizeof(ops::SamplerRow)) +
         kPadding;
}

void SamplerStage::WriteGuesses(std::span<const SlotId> slots,
                                std::span<const int32_t> first_positions, int32_t num_guesses,
                                StepStage& stage, ops::SampleRowsArgs& args) {
  ClearLists();
  rows_.resize(slots.size() * static_cast<size_t>(num_guesses));
  for (size_t n = 0; n < slots.size(); ++n) {
    const Slot& slot = slots_[static_cast<size_t>(slots[n].value)];
    ops::SamplerRow draw = StartDraw(slot);
    draw.logits_row = draw.slot = static_cast<int32_t>(n);
    draw.banned_begin = static_cast<int32_t>(banned_.size());
    AddBanned(slot, first_positions[n]);
    for (int32_t i = 0; i < num_guesses; ++i) {
      const int32_t position = first_positions[n] + i;
      const bool banned = position - slot.prompt_length < slot.sampling.min_new_tokens;
      draw.position = static_cast<uint64_t>(position);
      draw.banned_end = banned ? static_cast<int32_t>(banned_.size()) : draw.banned_begin;
      rows_[static_cast<size_t>(i) * slots.size() + n] = draw;
    }
  }
  args.kernel = ops::SamplerKernelFor(rows_);
  args.num_rows = static_cast<int32_t>(slots.size());
  PutLists(stage, args);
}

void SamplerStage::PutLists(StepStage& stage, ops::SampleRowsArgs& args) const {
  args.vocab_size = vocab_size_;
  args.rows = stage.Put<ops::SamplerRow>(rows_).device;
  args.bias_ids = stage.Put<int32_t>(bias_ids_).device;
  args.bias_values = stage.Put<float>(bias_values_).device;
  args.banned_ids = stage.Put<int32_t>(banned_).device;
}

void SamplerStage::AddRow(const StepPlan& plan, const StepRow& row, SampledStep& step) {
  const Slot& slot = slots_[static_cast<size_t>(row.slot.value)];
  step.rows.push_back({.plan_row = static_cast<int32_t>(step.rows.size()),
                       .first = static_cast<int32_t>(rows_.size()),
                       .num_scored = row.num_scored,
                       .samples = row.samples,
                       .wants_logprobs = slot.logprobs.enabled,
                       .wants_hidden = slot.logprobs.hidden,
                       .num_top = slot.logprobs.num_top,
                       .first_draft = static_cast<int32_t>(step.drafts.size()),
                       .num_drafts = row.num_drafts,
                       .forced_accepts = row.forced_accepts});
  const std::span<const TokenId> drafts = spec::DraftsOf(plan, row);
  step.drafts.insert(step.drafts.end(), drafts.begin(), drafts.end());
  const int32_t first_scored = row.first_token + row.score_begin + 1 - row.begin;
  for (int32_t i = 0; i < row.num_scored; ++i) {
    // Where hidden states are asked for, nobody reads scores: padding keeps the rows in step.
    rows_.push_back({.logits_row = slot.logprobs.hidden ? -1 : static_cast<int32_t>(rows_.size()),
                     .scored_token = plan.tokens[static_cast<size_t>(first_scored + i)],
                     .num_logprobs = slot.logprobs.num_top});
  }
  if (row.samples) AddDraws(slot, row);
}

void SamplerStage::AddAsked(const StepPlan& plan, SampledStep& step) {
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const Slot& slot = slots_[static_cast<size_t>(plan.rows[r].slot.value)];
    SampledStep::Row& row = step.rows[r];
    if (!slot.logprobs.enabled || slot.logprobs.token_ids.empty()) continue;
    row.first_asked = static_cast<int32_t>(rows_.size());
    row.num_asked = static_cast<int32_t>(slot.logprobs.token_ids.size());
    const int32_t end =
        row.first + row.num_scored + (row.samples ? 1 + plan.rows[r].num_drafts : 0);
    for (int32_t position = row.first; position < end; ++position) {
      for (const TokenId id : slot.logprobs.token_ids) {
        rows_.push_back({.logits_row = position, .scored_token = id, .num_logprobs = 0});
      }
    }
  }
}

void SamplerStage::AddDraws(const Slot& slot, const StepRow& row) {
  const SamplingParams& params = slot.sampling;
  // Counts follow every draw, those of refused drafts too.
  DCHECK(row.num_drafts == 0 || !params.has_penalties());
  ops::SamplerRow draw = StartDraw(slot);
  // The row behind one with drafts brings its tokens along: nobody reads the last one.
  draw.slot = row.num_drafts > 0 ? -1 : row.slot.value;
  draw.num_logprobs = slot.logprobs.enabled ? slot.logprobs.num_top : -1;
  draw.frequency_penalty = params.frequency_penalty;
  draw.presence_penalty = params.presence_penalty;
  draw.repetition_penalty = params.repetition_penalty;
  draw.counts_row = params.has_penalties() ? row.slot.value : -1;
  const int32_t first = row.end - row.num_drafts;
  draw.banned_begin = static_cast<int32_t>(banned_.size());
  AddBanned(slot, first);
  for (int32_t position = first; position <= row.end; ++position) {
    const bool banned = position - slot.prompt_length < params.min_new_tokens;
    draw.position = static_cast<uint64_t>(position);
    draw.logits_row = static_cast<int32_t>(rows_.size());
    draw.bitmask_row = row.mask < 0 ? -1 : row.mask + position - first;
    draw.banned_end = banned ? static_cast<int32_t>(banned_.size()) : draw.banned_begin;
    rows_.push_back(draw);
  }
}

ops::SamplerRow SamplerStage::StartDraw(const Slot& slot) {
  const SamplingParams& params = slot.sampling;
  ops::SamplerRow draw = {.seed = params.seed,
                          .temperature = params.greedy() ? 0.0f : params.temperature,
                          .top_k = params.top_k,
                          .top_p = params.top_p,
                          .min_p = params.min_p};
  draw.bias_begin = static_cast<int32_t>(bias_ids_.size());
  for (const auto& [id, value] : params.logit_bias) {
    bias_ids_.push_back(id);
    bias_values_.push_back(value);
  }
  draw.bias_end = static_cast<int32_t>(bias_ids_.size());
  return draw;
}

void SamplerStage::AddBanned(const Slot& slot, int32_t position) {
  const SamplingParams& params = slot.sampling;
  if (position - slot.prompt_length >= params.min_new_tokens) return;
  banned_.insert(banned_.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
}

void SamplerStage::WriteStarts(const StepPlan& plan, StepStage& stage,
                               ops::StartCountsArgs& starts) {
  starts_.clear();
  outputs_.clear();
  for (const SlotStart& start : plan.starts) {
    if (!start.sampling.has_penalties()) continue;
    const auto begin = static_cast<int32_t>(outputs_.size());
    outputs_.insert(outputs_.end(), start.outputs.begin(), start.outputs.end());
    starts_.push_back({start.slot.value, begin, static_cast<int32_t>(outputs_.size())});
  }
  starts.num_starts = static_cast<int32_t>(starts_.size());
  starts.vocab_size = vocab_size_;
  starts.starts = stage.Put<ops::CountsStart>(starts_).device;
  starts.outputs = stage.Put<int32_t>(outputs_).device;
}

void ReadResults(const SampledStep& step, const ops::SampledToken* tokens, const int32_t* top_ids,
                 const float* top_logprobs, StepResult& result) {
  CHECK_LE(step.rows.size(), result.rows.size());
  const auto logprob_of = [&](const SampledStep::Row& row, int32_t i) {
    const ops::SampledToken& token = tokens[i];
    TokenLogprob out{token.token, token.logprob, token.rank, {}};
    for (int32_t n = 0; n < row.num_top; ++n) {
      const int64_t at = int64_t{i} * ops::kMaxTopLogprobs + n;
      out.top.emplace_back(top_ids[at], top_logprobs[at]);
    }
    const int32_t asked = row.first_asked + (i - row.first) * row.num_asked;
    for (int32_t n = 0; n < row.num_asked; ++n) {
      out.asked.emplace_back(tokens[asked + n].token, tokens[asked + n].logprob);
    }
    return out;
  };
  for (const SampledStep::Row& row : step.rows) {
    RowResult& out = result.rows[static_cast<size_t>(row.plan_row)];
    const int32_t num_scored = row.wants_hidden ? 0 : row.num_scored;
    for (int32_t i = row.first; i < row.first + num_scored; ++i) {
      out.prompt_logprobs.push_back(logprob_of(row, i));
    }
    if (!row.samples) continue;
    const auto drafts =
        std::span(step.drafts)
            .subspan(static_cast<size_t>(row.first_draft), static_cast<size_t>(row.num_drafts));
    bool goes_on = true;
    for (int32_t i = 0; goes_on; ++i) {
      const int32_t drawn = row.first + row.num_scored + i;
      out.bad_logits = tokens[drawn].bad_logits != 0;
      if (out.bad_logits) break;
      const spec::Verdict verdict =
          spec::Verify(drafts, row.forced_accepts, static_cast<size_t>(i), tokens[drawn].token);
      out.tokens.push_back(verdict.token);
      if (row.wants_logprobs) {
        out.logprobs.push_back(logprob_of(row, drawn));
        out.logprobs.back().token = verdict.token;
      }
      goes_on = verdict.goes_on;
    }
  }
}

void AddHidden(const SampledStep& step, const float* hidden, int32_t width, StepResult& result) {
  for (const SampledStep::Row& row : step.rows) {
    if (!row.wants_hidden) continue;
    std::vector<float>& sum = result.rows[static_cast<size_t>(row.plan_row)].hidden;
    sum.assign(static_cast<size_t>(width), 0.0f);
    const int32_t end = row.first + row.num_scored + (row.samples ? 1 : 0);
    for (int32_t i = row.first; i < end; ++i) {
      const float* from = hidden + int64_t{i} * width;
      for (size_t n = 0; n < sum.size(); ++n) sum[n] += from[n];
    }
  }
}

}  // namespace hayate::exec
