#pragma once
// The drafters inside DeepSeek's checkpoints.
//
// MTP (V3, V4): one layer more, which joins what the trunk made of token t with the embedding of
// token t + 1 and predicts token t + 2. For further guesses it takes its own output in the trunk's
// place. Its entry of position t knows token t + 1, so a prefix that another sequence left may end
// in an entry that is not quite this sequence's: guesses suffer, answers do not.
//
// DSpark (V4, V4.1): a few layers that see a block at once,
//
//   context   main_x = norm(main_proj · means of the trunk's streams at some layers), for every
//             position: the window rows of all stages
//   block     embeddings of [anchor, noise, noise, …], whose keys see each other and the context
//   guess i   head · norm(u_i) + markov_out · markov_in[guess before], with the confidence
//             sigmoid(proj · [u_i; markov_in[guess before]])

#include <memory>

#include "base/status.h"
#include "models/draft_model.h"

namespace hayate::models {

// As LoadDraftModel, for a target of that family.
Result<std::unique_ptr<DraftModel>> LoadDeepseekMtp(const weights::Checkpoint& checkpoint,
                                                    const LoadOptions& options,
                                                    const Model& target);
Result<std::unique_ptr<DraftModel>> LoadDeepseekDspark(const weights::Checkpoint& checkpoint,
                                                       const LoadOptions& options,
                                                       const Model& target);
Result<std::unique_ptr<DraftModel>> LoadDeepseekV3Mtp(const weights::Checkpoint& checkpoint,
                                                      const LoadOptions& options,
                                                      const Model& target);

}  // namespace hayate::models
