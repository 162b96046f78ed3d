#include "ops/drafting/draft_logits.h"

#include <cmath>
#include <limits>

#include "ops/drafting/sm90/drafting.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void MarkovGuess(Stream stream, const MarkovGuessArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::MarkovGuess(stream, args);
  }
  const int64_t count = args.before.rows(), width = args.added.cols();
  const int64_t hidden = args.states.cols(), rank = args.before.cols();
  for (int64_t n = 0; n < count; ++n) {
    const int64_t query = n * args.block + args.guess;
    const float* base = args.base.as<float>() + query * width;
    const float* added = args.added.as<float>() + n * width;
    float* out = args.logits + n * args.logits_stride;
    for (int64_t c = 0; c < width; ++c) out[c] = base[c] + added[c];
    const float* state = args.states.as<float>() + query * hidden;
    const float* before = args.before.as<float>() + n * rank;
    float sum = 0.0f;
    for (int64_t c = 0; c < hidden; ++c) sum += args.proj[c] * state[c];
    for (int64_t c = 0; c < rank; ++c) sum += args.proj[hidden + c] * before[c];
    args.confidences[n] = 1.0f / (1.0f + std::exp(-sum));
  }
}

void MapLogits(Stream stream, const MapLogitsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::MapLogits(stream, args);
  }
  const int64_t vocab = args.logits.cols(), width = args.from.cols();
  for (int64_t n = 0; n < args.logits.rows(); ++n) {
    float* out = args.logits.as<float>() + n * vocab;
    for (int64_t v = 0; v < vocab; ++v) {
      const int32_t source = args.source[v];
      if (source == MapLogitsArgs::kOthers) continue;
      out[v] = source == MapLogitsArgs::kNoSource ? -std::numeric_limits<float>::infinity()
                                                  : args.from.as<float>()[n * width + source];
    }
  }
}

}  // namespace hayate::ops
