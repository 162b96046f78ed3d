#include "engine/testing/simulated_executor.h"

#include <algorithm>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "spec/verify.h"

namespace hayate::engine {

TokenId SimulatedNextToken(std::span<const TokenId> context, int32_t vocab_size) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const TokenId token : context) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3u;
  }
  return static_cast<TokenId>((hash >> 20) % static_cast<uint64_t>(vocab_size));
}

SimulatedExecutor::SimulatedExecutor(Options options, VirtualClock& clock)
    : options_(std::move(options)), clock_(clock), rng_(options_.seed) {
  if (!options_.step_times.empty()) {
    step_cost_ = std::make_unique<const spec::StepCost>(options_.step_times);
  }
  const auto slots = static_cast<size_t>(options_.max_slots);
  const auto pages_per_slot =
      static_cast<size_t>(CeilDiv(options_.max_context, options_.layout.page_tokens));
  for (const int32_t num_pages : options_.num_pages) {
    pools_.emplace_back(static_cast<size_t>(num_pages * options_.num_dp_ranks),
                        std::vector<Entry>(static_cast<size_t>(options_.layout.page_tokens)));
    tables_.emplace_back(slots, std::vector<PageId>(pages_per_slot, kNoPage));
  }
  last_tokens_.resize(slots, -1);
}

void SimulatedExecutor::Submit(const StepPlan& plan) {
  CHECK_LT(in_flight_.size(), static_cast<size_t>(kMaxInFlight));
  in_flight_.push_back(plan);
}

int64_t SimulatedExecutor::StepNs(const StepPlan& plan) const {
  int32_t position = 0;
  for (const StepRow& row : plan.rows) {
    if (row.num_tokens() > row.num_drafts + 1) position = std::max(position, row.begin);
  }
  const int64_t ns = step_cost_ != nullptr ? static_cast<int64_t>(step_cost_->Ns(plan.num_tokens))
                                           : options_.step_ns + plan.num_tokens * options_.token_ns;
  return ns + position * options_.position_ns;
}

StepResult& SimulatedExecutor::WaitOldest() {
  CHECK(!in_flight_.empty());
  const StepPlan plan = std::move(in_flight_.front());
  in_flight_.pop_front();
  const int64_t step_ns = StepNs(plan);
  result_ = {.step = plan.step, .device_ns = step_ns, .device_start_ns = clock_.NowNs()};
  clock_.AdvanceNs(step_ns);
  if (plan.step >= fail_from_) {
    result_.status = Status(ErrorCode::kUnavailable, "simulated device failure");
    return result_;
  }
  Apply(plan);
  int32_t num_tokens = 0;
  for (const StepRow& row : plan.rows) {
    num_tokens += row.num_tokens();
    result_.rows.push_back(RunRow(plan, row));
  }
  CHECK_EQ(num_tokens, plan.num_tokens);
  return result_;
}

void SimulatedExecutor::Apply(const StepPlan& plan) {
  for (const SlotStart& start : plan.starts) {
    for (auto& table : tables_) {
      auto& pages = table[static_cast<size_t>(start.slot.value)];
      std::fill(pages.begin(), pages.end(), kNoPage);
    }
    last_tokens_[static_cast<size_t>(start.slot.value)] = -1;
  }
  for (const PageUpdate& update : plan.page_updates) {
    tables_[static_cast<size_t>(update.group)][static_cast<size_t>(update.slot.value)]
           [static_cast<size_t>(update.index)] = update.page;
  }
}

RowResult SimulatedExecutor::RunRow(const StepPlan& plan, const StepRow& row) {
  RowResult result;
  result.slot = row.slot;
  CHECK(row.begin < row.end && row.end <= options_.max_context);
  for (int32_t position = row.begin; position < row.end; ++position) {
    TokenId token = last_tokens_[static_cast<size_t>(row.slot.value)];
    if (row.first_token != kLateToken) {
      token = plan.tokens[static_cast<size_t>(row.first_token + position - row.begin)];
    } else {
      CHECK_EQ(row.num_tokens(), 1);
    }
    CHECK(token >= 0 && token < options_.vocab_size) << token;
    Write(row, position, token);
  }
  for (int32_t i = 0; i < row.num_scored; ++i) {
    const int32_t at = row.score_begin + i;
    const TokenId target = plan.tokens[static_cast<size_t>(row.first_token + at + 1 - row.begin)];
    const TokenId guess = SimulatedNextToken(ReadContext(row, at + 1), options_.vocab_size);
    result.prompt_logprobs.push_back({target, target == guess ? 0.0f : -1.0f});
  }
  bool goes_on = row.samples;
  for (int32_t i = 0; goes_on; ++i) {
    const int32_t position = row.end - row.num_drafts + i;
    TokenId token = SimulatedNextToken(ReadContext(row, position), options_.vocab_size);
    if (row.mask >= 0) token = FirstAllowed(plan, row.mask + i, token);
    const spec::Verdict verdict = spec::Verify(plan, row, i, token);
    last_tokens_[static_cast<size_t>(row.slot.value)] = verdict.token;
    result.tokens.push_back(verdict.token);
    goes_on = verdict.goes_on;
  }
  if (row.proposes) {
    const int32_t num_stand = row.end - row.num_drafts + static_cast<int32_t>(result.tokens.size());
    std::vector<TokenId> context = ReadContext(row, num_stand - 1);
    context.push_back(result.tokens.back());
    ProposeDrafts(row, std::move(context), result);
  }
  return result;
}

void SimulatedExecutor::ProposeDrafts(const StepRow& row, std::vector<TokenId> context,
                                      RowResult& result) {
  for (int32_t i = 0; i < options_.max_drafts; ++i) {
    const auto page_index = static_cast<size_t>((row.end + i) / options_.layout.page_tokens);
    for (const auto& tables : tables_) {
      CHECK_GT(tables[static_cast<size_t>(row.slot.value)][page_index].value, kScratchPage.value)
          << "no page for draft position " << row.end + i;
    }
    TokenId draft = SimulatedNextToken(context, options_.vocab_size);
    float quality = options_.draft_quality;
    if (options_.draft_confidences) result.draft_confidences.push_back(quality = rng_.NextFloat());
    if (rng_.NextFloat() >= quality) {
      const auto others = static_cast<uint32_t>(options_.vocab_size - 1);
      draft = (draft + 1 + static_cast<TokenId>(rng_.Below(others))) % options_.vocab_size;
    }
    context.push_back(draft);
    result.drafts.push_back(draft);
  }
}

// The first token at or after `token`, round the vocabulary, that the mask allows.
TokenId SimulatedExecutor::FirstAllowed(const StepPlan& plan, int32_t mask, TokenId token) const {
  CHECK(plan.masks->published()) << "the device waits for masks that nobody wrote";
  const uint32_t* bits = plan.masks->Await(static_cast<size_t>(mask));
  for (int32_t i = 0; i < options_.vocab_size; ++i) {
    const TokenId candidate = (token + i) % options_.vocab_size;
    if ((bits[candidate / 32] >> (candidate % 32) & 1) != 0) return candidate;
  }
  CHECK(false) << "a mask without a token";
  return 0;
}

SimulatedExecutor::Entry& SimulatedExecutor::At(size_t group, SlotId slot, PageId page,
                                                int32_t offset) {
  const int32_t dp_rank = slot.value % options_.num_dp_ranks;
  const int32_t index = dp_rank * options_.num_pages[group] + page.value;
  return pools_[group][static_cast<size_t>(index)][static_cast<size_t>(offset)];
}

void SimulatedExecutor::Write(const StepRow& row, int32_t position, TokenId token) {
  const int32_t page_tokens = options_.layout.page_tokens;
  for (size_t group = 0; group < tables_.size(); ++group) {
    const PageId page = tables_[group][static_cast<size_t>(row.slot.value)]
                               [static_cast<size_t>(position / page_tokens)];
    CHECK_GT(page.value, kScratchPage.value) << "no page for position " << position;
    At(group, row.slot, page, position % page_tokens) = {token, position};
  }
}

std::vector<TokenId> SimulatedExecutor::ReadContext(const StepRow& row, int32_t num_tokens) {
  const int32_t page_tokens = options_.layout.page_tokens;
  std::vector<TokenId> context(static_cast<size_t>(num_tokens), -1);
  for (size_t group = 0; group < tables_.size(); ++group) {
    const CacheGroup& info = options_.layout.groups[group];
    const int32_t first =
        info.kind == CacheKind::kWindow ? std::max(0, num_tokens - info.window) : 0;
    for (int32_t position = first; position < num_tokens; ++position) {
      const PageId page = tables_[group][static_cast<size_t>(row.slot.value)]
                                 [static_cast<size_t>(position / page_tokens)];
      CHECK_GT(page.value, kScratchPage.value) << info.name << " lacks position " << position;
      const Entry& entry = At(group, row.slot, page, position % page_tokens);
      CHECK_EQ(entry.position, position) << "page " << page << " of " << info.name;
      TokenId& token = context[static_cast<size_t>(position)];
      CHECK(token == -1 || token == entry.token) << "groups disagree at position " << position;
      token = entry.token;
    }
  }
  return context;
}

}  // namespace hayate::engine
