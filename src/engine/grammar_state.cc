#include "engine/grammar_state.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/forced_token.h"

namespace hayate::engine {

Status GrammarState::Accept(TokenId token) {
  if (!matcher_.Accept(token)) {
    return Error(ErrorCode::kInternal, "token {} was drawn where the grammar does not allow it",
                 token);
  }
  mask_filled_ = false;
  forced_known_ = false;
  if (matcher_.ended()) {
    finished_ = true;
    return OkStatus();
  }
  return FillMask();
}

std::span<const uint32_t> GrammarState::mask() {
  // Only the first mask is filled here: the compiler has seen that it allows something.
  if (!mask_filled_ && !FillMask().ok()) std::fill(mask_.begin(), mask_.end(), ~uint32_t{0});
  return mask_;
}

std::span<const TokenId> GrammarState::Forced(size_t limit) {
  if (!forced_known_) {
    forced_.clear();
    // Each token costs a mask.
    if (!finished_ && slow_masks_ == 0) FindForced(limit);
    forced_known_ = true;
  }
  return std::span(forced_).first(std::min(forced_.size(), limit));
}

void GrammarState::FindForced(size_t limit) {
  const grammar::Vocabulary& vocabulary = matcher_.grammar().vocabulary();
  auto token = grammar::ForcedToken(vocabulary, mask());
  if (!token) return;
  next_mask_.resize(mask_.size());
  while (token && forced_.size() < limit && matcher_.Accept(*token)) {
    forced_.push_back(*token);
    if (matcher_.FillMask(next_mask_, cache_) != grammar::MaskKind::kSome) break;
    token = grammar::ForcedToken(vocabulary, next_mask_);
  }
  matcher_.Rollback(static_cast<int32_t>(forced_.size()));
}

size_t GrammarState::CountAllowed(std::span<const TokenId> drafts) {
  // Each draft costs a mask.
  if (slow_masks_ > 0) return 0;
  size_t count = 0;
  // Nothing follows a stop token.
  while (count < drafts.size() && !matcher_.ended() && matcher_.Accept(drafts[count])) ++count;
  matcher_.Rollback(static_cast<int32_t>(count));
  return count;
}

void GrammarState::FillMasks(std::span<const TokenId> drafts, std::span<uint32_t> masks) {
  std::ranges::copy(mask(), masks.begin());
  const size_t words = mask_.size();
  int32_t accepted = 0;
  for (size_t i = 0; i < drafts.size(); ++i) {
    const std::span<uint32_t> bits = masks.subspan((i + 1) * words, words);
    // Where the drafts before it cannot all be drawn, nobody reads a mask.
    const bool reachable = accepted == static_cast<int32_t>(i) && matcher_.Accept(drafts[i]);
    accepted += reachable ? 1 : 0;
    if (reachable && !matcher_.ended()) {
      matcher_.FillMask(bits, cache_);
    } else {
      std::ranges::fill(bits, ~uint32_t{0});
    }
  }
  matcher_.Rollback(accepted);
}

Status GrammarState::FillMask() {
  const int64_t begin_ns = clock_.NowNs();
  const grammar::MaskKind kind = matcher_.FillMask(mask_, cache_);
  mask_filled_ = true;
  const bool slow = clock_.NowNs() - begin_ns > kSlowMaskNs;
  slow_masks_ = std::max(0, slow_masks_ + (slow ? 1 : -1));
  if (slow_masks_ > kMaxSlowMasks) {
    return Status(ErrorCode::kInvalidArgument,
                  "the grammar takes too long to follow; make it simpler");
  }
  if (kind == grammar::MaskKind::kNone) {
    return Status(ErrorCode::kInvalidArgument,
                  "no token of this model can continue the text that the grammar wants");
  }
  finished_ = kind == grammar::MaskKind::kOnlyStop;
  return OkStatus();
}

}  // namespace hayate::engine
