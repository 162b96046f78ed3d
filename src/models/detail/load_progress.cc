#include "models/detail/load_progress.h"

namespace hayate::models {

void ReportProgress(const weights::Checkpoint& checkpoint, const LoadOptions& options, int done,
                    int total) {
  if (!options.progress) return;
  int64_t bytes = 0;
  for (const auto& [name, info] : checkpoint.tensors()) bytes += static_cast<int64_t>(info.bytes);
  bytes /= options.num_ranks;
  options.progress(bytes * done / total, bytes);
}

}  // namespace hayate::models
