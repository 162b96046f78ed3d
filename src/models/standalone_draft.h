#pragma once
// A whole model as the drafter of a larger one with the same vocabulary. It computes the tokens
// that the target committed, and the anchor with them, in one pass; then one token a guess.

#include <memory>

#include "base/status.h"
#include "models/draft_model.h"

namespace hayate::models {

// kInvalidArgument where the vocabularies or the contexts do not fit.
Result<std::unique_ptr<DraftModel>> LoadStandaloneDraft(const weights::Checkpoint& checkpoint,
                                                        const LoadOptions& options,
                                                        const Model& target);

}  // namespace hayate::models
