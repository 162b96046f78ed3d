#pragma once
// A sequence's place in its grammar, and the mask of its next token. The place follows the
// committed tokens, so retraction does not touch it. Owner: engine thread.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "core/ids.h"
#include "grammar/matcher.h"

namespace hayate::engine {

class GrammarState {
 public:
  // A mask that takes longer holds up the whole step, every row of it.
  static constexpr int64_t kSlowMaskNs = 10'000'000;
  // So many slow masks beyond the quick ones end the sequence.
  static constexpr int32_t kMaxSlowMasks = 16;

  // The clock and the cache outlive the state.
  GrammarState(std::shared_ptr<const grammar::CompiledGrammar> grammar, const Clock& clock,
               grammar::MaskCache& cache)
      : matcher_(std::move(grammar)),
        clock_(clock),
        cache_(cache),
        mask_(matcher_.grammar().vocabulary().mask_words()) {}

  // A committed token. An error when the grammar cannot go on with it.
  Status Accept(TokenId token);
  // The text is complete and nothing can follow it.
  bool finished() const { return finished_; }
  // Allowed next tokens, [⌈V/32⌉]. Call only while not finished.
  std::span<const uint32_t> mask();
  // Tokens for the text that must come next whatever the model prefers, at most `limit`; often
  // none. The model may spell it with other tokens. Kept until the next Accept.
  std::span<const TokenId> Forced(size_t limit);
  // How many of the drafts the grammar can go on with.
  size_t CountAllowed(std::span<const TokenId> drafts);
  // The masks of a row that verifies drafts, drafts.size() + 1 of them, each as mask() where the
  // drafts before it were accepted. Call only while not finished.
  void FillMasks(std::span<const TokenId> drafts, std::span<uint32_t> masks);

 private:
  Status FillMask();
  void FindForced(size_t limit);

  grammar::Matcher matcher_;
  const Clock& clock_;
  grammar::MaskCache& cache_;
  std::vector<uint32_t> mask_;
  std::vector<uint32_t> next_mask_;  // scratch of FindForced
  std::vector<TokenId> forced_;
  bool forced_known_ = false;
  bool mask_filled_ = false;
  bool finished_ = false;
  int32_t slow_masks_ = 0;
};

}  // namespace hayate::engine
