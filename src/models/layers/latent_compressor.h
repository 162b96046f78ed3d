#pragma once
// A compressor of DeepSeek V4: the projections of its values and gates, and the norm of what it
// emits. Its rows go to a latent cache: entries of the attention, or keys of the indexer.

#include <cstdint>

#include "models/layers/linear.h"
#include "ops/compress/compress.h"

namespace hayate::models {

struct LatentCompressor {
  Linear kv_gate;  // rows: the values' W, then the gates' W; [2W, H]
  Buffer ape;      // [ratio, W], or empty
  Buffer norm;     // [D]
  int32_t ratio = 0;
  int32_t head_dim = 0;   // D
  bool overlaps = false;  // W = 2D, else D

  int32_t width() const { return overlaps ? 2 * head_dim : head_dim; }
  int64_t bytes() const { return kv_gate.bytes() + static_cast<int64_t>(ape.size() + norm.size()); }
};

// What a step tells every compressor of one ratio.
struct CompressorStep {
  const int32_t* positions = nullptr;  // [T]
  ops::LatentTargets targets;          // entries that the step completes
  const float* cos_sin = nullptr;      // [E, R], of the entries' first tokens
  ops::AttentionRows entry_rows, pending_rows, overlap_rows;
  int32_t page_tokens = 0;
  int32_t max_drafts = 0;
};

struct CompressorCache {
  ops::LatentLayerView rows;
  ops::CompressorStates pending, overlap;
};

enum class RowTransform : uint8_t { kNone, kHadamard };

// Adds the tokens x [T, H] and stores the entries that they complete. `latents` [E, D], where it
// has data, receives them normed and not rotated.
void CompressTokens(Stream stream, Workspace& workspace, const LatentCompressor& compressor,
                    const CompressorStep& step, const CompressorCache& cache, ConstTensorView x,
                    float norm_eps, RowTransform transform, TensorView latents = {});

int64_t CompressWorkspaceBytes(int64_t max_tokens, int64_t hidden_size, int64_t width);

}  // namespace hayate::models
