#include "models/detail/model_facts.h"

#include "base/error.h"
#include "weights/describe.h"

namespace hayate::models {

Result<int32_t> ContextOf(const LoadOptions& options, int32_t trained_context) {
  if (options.max_context < 0 || options.max_context > trained_context) {
    return Error(ErrorCode::kInvalidArgument,
                 "a context of {} tokens; the model was made for at most {}", options.max_context,
                 trained_context);
  }
  return options.max_context > 0 ? options.max_context : trained_context;
}

int64_t CountParameters(const weights::Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const auto& [name, info] : checkpoint.tensors()) {
    count += weights::NumParameters(name, info);
  }
  return count;
}

}  // namespace hayate::models
