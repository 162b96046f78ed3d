#include "engine/grammar_state.h"

#include <algorithm>

#include "base/error.h"

namespace hayate::engine {

Status GrammarState::Accept(TokenId token) {
  if (!matcher_.Accept(token)) {
    return Error(ErrorCode::kInternal, "token {} was drawn where the grammar does not allow it",
                 token);
  }
  mask_filled_ = false;
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

Status GrammarState::FillMask() {
  const int64_t begin_ns = clock_.NowNs();
  const grammar::MaskKind kind = matcher_.FillMask(mask_);
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
