#pragma once
// A StepExecutor without a model, for tests of scheduler and engine: "KV entries" are the tokens
// themselves, stored page by page exactly as plans say, and the next token is a hash of what a row
// reads back through its page tables. A page that was given away too early, a wrong position or a
// lost update changes the answer, and the test sees it.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "core/step_executor.h"
#include "spec/step_cost.h"
#include "tensor/cache_layout.h"

namespace hayate::engine {

// The model: the token after `context`, in [0, vocab_size).
TokenId SimulatedNextToken(std::span<const TokenId> context, int32_t vocab_size);

class SimulatedExecutor final : public StepExecutor {
 public:
  struct Options {
    CacheLayout layout;              // full and window groups
    std::vector<int32_t> num_pages;  // of each dp rank
    int32_t max_slots = 0;
    int32_t num_dp_ranks = 1;  // slot s is of dp rank s mod num_dp_ranks, with pools of its own
    int32_t max_context = 0;
    int32_t vocab_size = 50;
    int64_t step_ns = 1'000'000;  // a step's time: step_ns + tokens × token_ns
    int64_t token_ns = 10'000;
    std::vector<spec::StepCost::Point> step_times = {};  // in place of the two
    int64_t position_ns = 0;  // and so much for each position before the furthest chunk of a prompt
    // The drafter: guesses behind the draws of a row that proposes, each right with the given
    // chance; or with a random one, which is its confidence.
    int32_t max_drafts = 0;
    float draft_quality = 0.5f;
    bool draft_confidences = false;
    uint64_t seed = 1;
  };
  // The clock advances by a step's time when its result is taken.
  SimulatedExecutor(Options options, VirtualClock& clock);

  void Submit(const StepPlan& plan) override;
  StepResult& WaitOldest() override;

  // From the given step on every result carries an error.
  void FailFrom(uint64_t step) { fail_from_ = step; }

 private:
  struct Entry {
    TokenId token = -1;
    int32_t position = -1;
  };
  int64_t StepNs(const StepPlan& plan) const;
  void Apply(const StepPlan& plan);
  RowResult RunRow(const StepPlan& plan, const StepRow& row);
  // Guesses of what follows the row's draws, which lie behind position `end`.
  void ProposeDrafts(const StepRow& row, std::vector<TokenId> context, RowResult& result);
  TokenId FirstAllowed(const StepPlan& plan, int32_t mask, TokenId token) const;
  // An entry of the pools of the slot's dp rank.
  Entry& At(size_t group, SlotId slot, PageId page, int32_t offset);
  void Write(const StepRow& row, int32_t position, TokenId token);
  std::vector<TokenId> ReadContext(const StepRow& row, int32_t num_tokens);

  Options options_;
  VirtualClock& clock_;
  std::unique_ptr<const spec::StepCost> step_cost_;  // of step_times
  Rng rng_;
  std::vector<std::vector<std::vector<Entry>>> pools_;    // [group][dp rank × page][P]
  std::vector<std::vector<std::vector<PageId>>> tables_;  // [group][slot][index]
  std::vector<TokenId> last_tokens_;                      // [slot]
  std::deque<StepPlan> in_flight_;
  StepResult result_;
  uint64_t fail_from_ = ~uint64_t{0};
};

}  // namespace hayate::engine
