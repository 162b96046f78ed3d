#pragma once
// An EAGLE-3 head as the drafter of a dense model: one layer that takes, for every token t, the
// embedding of token t + 1 and what some layers of the target made of token t, and guesses token
// t + 2 out of a vocabulary of its own:
//
//   g ← fc · [states of the target's layers]                 joined once, of committed tokens
//   g ← g + attention([norm(embedding of t + 1); norm(g)]);  g ← g + mlp(norm(g))
//   logits ← head · norm(g), token i of it being token i + d2t[i] of the target
//
// For further guesses g takes the place of what fc made.

#include <memory>

#include "base/status.h"
#include "models/draft_model.h"

namespace hayate::models {

// `head` is the head's own checkpoint. kUnsupported for targets other than dense ones and their
// mixtures; kInvalidArgument where the vocabularies do not fit.
Result<std::unique_ptr<DraftModel>> LoadEagle3Draft(const weights::Checkpoint& head,
                                                    const LoadOptions& options,
                                                    const Model& target);

}  // namespace hayate::models
