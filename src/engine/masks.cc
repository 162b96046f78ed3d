// Engine: the masks of grammar rows. A step's masks are written once the tokens before it are
// committed, while its forward pass runs.

#include <algorithm>

#include "engine/engine.h"
#include "spec/verify.h"

namespace hayate::engine {

void Engine::PrepareMasks(InFlightStep& step) {
  if (step.plan.num_masks == 0) return;
  size_t words = 0;
  for (size_t i = 0; i < step.plan.rows.size() && words == 0; ++i) {
    if (step.plan.rows[i].mask >= 0) words = grammars_.at(step.owners[i]).mask().size();
  }
  step.masks->Reset(static_cast<size_t>(step.plan.num_masks), words);
  step.plan.masks = step.masks;
}

void Engine::PublishMasks() {
  if (num_in_flight_ == 0) return;
  InFlightStep& step = in_flight_[oldest_];
  if (step.plan.num_masks == 0) return;
  for (size_t i = 0; i < step.plan.rows.size(); ++i) {
    const StepRow& row = step.plan.rows[i];
    if (row.mask < 0) continue;
    const auto num_drafts = static_cast<size_t>(row.num_drafts);
    const std::span<uint32_t> bits =
        step.masks->rows(static_cast<size_t>(row.mask), num_drafts + 1);
    const auto it = grammars_.find(step.owners[i]);
    if (it == grammars_.end()) {
      // The sequence ended meanwhile; whatever its row draws is dropped.
      std::fill(bits.begin(), bits.end(), ~uint32_t{0});
    } else {
      it->second.FillMasks(spec::DraftsOf(step.plan, row), bits);
    }
  }
  step.masks->Publish();
}

Engine::GrammarVerdict Engine::AdvanceGrammar(RequestId id, TokenId token) {
  const auto it = grammars_.find(id);
  if (it == grammars_.end()) return {};
  Status status = it->second.Accept(token);
  const bool finished = status.ok() && it->second.finished();
  return {.finished = finished, .error = std::move(status)};
}

}  // namespace hayate::engine
