#pragma once
// Tells the caller of a load how far it is.

#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// `done` of `total` pieces of equal size, as bytes of this rank's share of the checkpoint.
void ReportProgress(const weights::Checkpoint& checkpoint, const LoadOptions& options, int done,
                    int total);

}  // namespace hayate::models
