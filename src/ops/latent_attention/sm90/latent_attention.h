#pragma once
// ops::LatentAttention in its absorbed form, and ops::LatentAppend, on a CUDA device. The heads'
// projections are one grouped product each; attention is that over latent rows.

#include "ops/latent_attention/latent_attention.h"

namespace hayate::ops::sm90 {

// Uploads where the heads' matrices lie.
Status PlaceProjections(Device& device, LatentProjections& projections);

void LatentAttention(Stream stream, Workspace& workspace, const LatentAttentionArgs& args);
int64_t LatentAttentionWorkspaceBytes(const LatentProjections& projections, int64_t max_tokens);
void LatentAppend(Stream stream, const LatentAppendArgs& args);

// to[t, h, begin + i] = from[t, h, from_begin + i] for i < count, over [T, Hq, width] tensors.
struct CopyFeaturesArgs {
  TensorView to;
  ConstTensorView from;  // of the type of `to`
  int64_t to_begin = 0, from_begin = 0, count = 0;
};
void CopyFeatures(Stream stream, const CopyFeaturesArgs& args);

}  // namespace hayate::ops::sm90
