#pragma once
// The launchers of ops/sampling/device_sampler.h.

#include "ops/sampling/device_sampler.h"

namespace hayate::ops::sm90 {

// SampleRows, by args.kernel.
void SampleGreedyRows(Stream stream, const SampleRowsArgs& args);
void SampleAnyRows(Stream stream, const SampleRowsArgs& args);
void StartCounts(Stream stream, const StartCountsArgs& args);

}  // namespace hayate::ops::sm90
