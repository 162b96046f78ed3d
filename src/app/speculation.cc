#include "app/speculation.h"

#include <algorithm>

#include "base/error.h"

namespace hayate::app {
namespace {

// Drafts of one step, over all rows: each costs a row of logits.
constexpr int32_t kMaxStepDrafts = 512;
constexpr int32_t kMaxDrafts = 64;
// The same where grammars alone draft: few rows of a step are at a place that is forced.
constexpr int32_t kMaxForcedStepDrafts = 64;

struct Algorithm {
  const char* name;
  engine::DraftSource source;
  models::DraftKind draft_model;
  int32_t default_drafts;
};
constexpr Algorithm kAlgorithms[] = {
    {"GRAMMAR", engine::DraftSource::kGrammar, models::DraftKind::kNone, 11},
    {"NGRAM", engine::DraftSource::kNgram, models::DraftKind::kNone, 11},
    {"STANDALONE", engine::DraftSource::kModel, models::DraftKind::kStandalone, 3},
    {"EAGLE3", engine::DraftSource::kModel, models::DraftKind::kEagle3, 3},
    {"NEXTN", engine::DraftSource::kModel, models::DraftKind::kNextN, 1},
    {"EAGLE", engine::DraftSource::kModel, models::DraftKind::kNextN, 1},
    {"DSPARK", engine::DraftSource::kModel, models::DraftKind::kDspark, 5},
};

std::string InCapitals(std::string name) {
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name;
}

Result<Algorithm> FindAlgorithm(const std::string& name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (name == algorithm.name) return algorithm;
  }
  return Error(ErrorCode::kInvalidArgument,
               "--speculative-algorithm '{}' is unknown; use NONE, GRAMMAR, NGRAM, STANDALONE, "
               "EAGLE3, NEXTN or DSPARK",
               name);
}

Status CheckUnused(const SpeculationFlags& flags) {
  const bool any = !flags.draft_model_path.empty() || flags.num_steps != 0 ||
                   flags.num_draft_tokens != 0 || flags.eagle_topk != 1 || !flags.adaptive ||
                   flags.forced_acceptance != 0;
  if (!any) return OkStatus();
  return Status(ErrorCode::kInvalidArgument,
                "--speculative-… flags need --speculative-algorithm too");
}

Result<int32_t> NumDrafts(const SpeculationFlags& flags, int32_t fallback) {
  int32_t drafts = flags.num_steps;
  if (flags.num_draft_tokens != 0) {
    if (drafts != 0 && drafts != flags.num_draft_tokens - 1) {
      return Error(ErrorCode::kInvalidArgument,
                   "--speculative-num-steps {} and --speculative-num-draft-tokens {} contradict "
                   "each other: drafts are a chain, so the tokens are the steps and one more",
                   flags.num_steps, flags.num_draft_tokens);
    }
    drafts = flags.num_draft_tokens - 1;
  }
  if (drafts == 0) drafts = fallback;
  if (drafts < 1 || drafts > kMaxDrafts) {
    return Error(ErrorCode::kInvalidArgument, "{} draft tokens a row, must be 1 to {}", drafts,
                 kMaxDrafts);
  }
  return drafts;
}

}  // namespace

Result<Speculation> ResolveSpeculation(const SpeculationFlags& flags, const std::string& device,
                                       int32_t max_running) {
  Speculation result;
  std::string name = InCapitals(flags.algorithm);
  if (name.empty() || name == "NONE") {
    RETURN_IF_ERROR(CheckUnused(flags));
    if (!name.empty() || device != "cpu") return result;
    name = "GRAMMAR";
  }
  ASSIGN_OR_RETURN(const Algorithm algorithm, FindAlgorithm(name));
  const bool own_model = algorithm.draft_model == models::DraftKind::kStandalone ||
                         algorithm.draft_model == models::DraftKind::kEagle3;
  if (own_model != !flags.draft_model_path.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "--speculative-algorithm {} {} --speculative-draft-model-path", algorithm.name,
                 own_model ? "needs" : "takes no");
  }
  if (flags.eagle_topk != 1) {
    return Error(ErrorCode::kInvalidArgument,
                 "--speculative-eagle-topk {}: drafts are a chain, which is 1", flags.eagle_topk);
  }
  ASSIGN_OR_RETURN(result.max_drafts, NumDrafts(flags, algorithm.default_drafts));
  if (flags.forced_acceptance != 0 &&
      (flags.forced_acceptance < 1 || flags.forced_acceptance > result.max_drafts + 1)) {
    return Error(ErrorCode::kInvalidArgument,
                 "--speculative-forced-acceptance {}: rows of {} drafts bring 1 to {} tokens",
                 flags.forced_acceptance, result.max_drafts, result.max_drafts + 1);
  }
  result.adaptive = flags.adaptive && flags.forced_acceptance == 0;
  result.draft_model = algorithm.draft_model;
  result.source = algorithm.source;
  const int32_t most =
      algorithm.source == engine::DraftSource::kGrammar ? kMaxForcedStepDrafts : kMaxStepDrafts;
  result.max_step_drafts = std::clamp(max_running * result.max_drafts, result.max_drafts,
                                      std::max(most, result.max_drafts));
  return result;
}

}  // namespace hayate::app
