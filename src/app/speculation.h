#pragma once
// The command line's speculative decoding: flags by SGLang's names, and what follows from them.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/drafting.h"
#include "models/registry.h"

namespace hayate::app {

struct SpeculationFlags {
  // NONE, GRAMMAR, NGRAM, STANDALONE, EAGLE3, NEXTN (EAGLE), DSPARK; empty: GRAMMAR on a CPU, else
  // NONE.
  std::string algorithm;
  std::string draft_model_path;  // STANDALONE, EAGLE3
  int32_t num_steps = 0;         // drafts of a row; 0: num_draft_tokens − 1
  int32_t num_draft_tokens = 0;  // tokens of a row that verifies, drafts + 1; 0: the algorithm's
  int32_t eagle_topk = 1;        // guesses for a place; only 1 exists
  bool adaptive = true;          // false: a step verifies all drafts that there are
  double forced_acceptance = 0;  // benches: tokens a row brings; 0: off
};

// What the flags mean. max_drafts = 0: no speculation.
struct Speculation {
  models::DraftKind draft_model = models::DraftKind::kNone;
  engine::DraftSource source = engine::DraftSource::kNgram;
  int32_t max_drafts = 0;
  int32_t max_step_drafts = 0;
  bool adaptive = true;  // how many are verified follows the measured time of steps
};

// kInvalidArgument names the flag that is wrong or does not fit the device.
Result<Speculation> ResolveSpeculation(const SpeculationFlags& flags, const std::string& device,
                                       int32_t max_running);

}  // namespace hayate::app
