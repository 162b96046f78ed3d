#include "models/draft_model.h"

#include "base/error.h"
#include "models/deepseek_draft.h"
#include "models/detail/deepseek_v3_config.h"
#include "models/eagle3_draft.h"
#include "models/standalone_draft.h"

namespace hayate::models {
namespace {

Result<std::unique_ptr<DraftModel>> LoadNextN(const weights::Checkpoint& checkpoint,
                                              const LoadOptions& options, const Model& target) {
  if (IsDeepseekV3(checkpoint.architecture())) {
    return LoadDeepseekV3Mtp(checkpoint, options, target);
  }
  if (checkpoint.architecture() == "DeepseekV4ForCausalLM") {
    return LoadDeepseekMtp(checkpoint, options, target);
  }
  return Error(ErrorCode::kUnsupported, "{} has no layers that predict further tokens",
               checkpoint.architecture());
}

Result<std::unique_ptr<DraftModel>> LoadKind(const weights::Checkpoint& checkpoint,
                                             const LoadOptions& options, const Model& target) {
  switch (options.draft) {
    case DraftKind::kNextN:
      return LoadNextN(checkpoint, options, target);
    case DraftKind::kDspark:
      return LoadDeepseekDspark(checkpoint, options, target);
    case DraftKind::kStandalone:
      return LoadStandaloneDraft(checkpoint, options, target);
    case DraftKind::kEagle3:
      return LoadEagle3Draft(checkpoint, options, target);
    default:
      return Error(ErrorCode::kUnsupported, "no drafter of this kind");
  }
}

}  // namespace

Result<std::unique_ptr<DraftModel>> LoadDraftModel(const weights::Checkpoint& checkpoint,
                                                   const LoadOptions& options,
                                                   const Model& target) {
  LoadOptions own = options;
  // A drafter's rows do not travel: how many there are is known only once the target has drawn.
  own.experts = {};
  Result<std::unique_ptr<DraftModel>> drafter = LoadKind(checkpoint, own, target);
  if (!drafter.ok()) return drafter.status().Under(checkpoint.path().string());
  return drafter;
}

}  // namespace hayate::models
