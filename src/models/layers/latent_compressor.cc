#include "models/layers/latent_compressor.h"

#include <algorithm>

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

}  // namespace

void CompressTokens(Stream stream, Workspace& workspace, const LatentCompressor& compressor,
                    const CompressorStep& step, const CompressorCache& cache, ConstTensorView x,
                    float norm_eps, RowTransform transform, TensorView latents) {
  const size_t mark = workspace.mark();
  const int64_t tokens = x.shape[0], width = compressor.width();
  const TensorView kv_gate = workspace.Take(DType::kF32, {tokens, 2 * width});
  Apply(stream, workspace, compressor.kv_gate, x, kv_gate);
  const auto half = [&](int64_t begin) {
    return ConstTensorView{kv_gate.data + begin * static_cast<int64_t>(sizeof(float)), DType::kF32,
                           Shape{tokens, width}};
  };
  const Shape entries{std::max(1, step.targets.count), compressor.head_dim};
  const TensorView pooled =
      latents.data != nullptr ? latents : workspace.Take(DType::kF32, entries);
  ops::Compress(stream, {.out = pooled,
                         .kv = half(0),
                         .gate = half(width),
                         .row_stride = 2 * width,
                         .ape = Floats(compressor.ape),
                         .positions = step.positions,
                         .ratio = compressor.ratio,
                         .max_drafts = step.max_drafts,
                         .pending = cache.pending,
                         .pending_rows = step.pending_rows,
                         .overlap = cache.overlap,
                         .overlap_rows = step.overlap_rows,
                         .page_tokens = step.page_tokens});
  ops::LatentWrite(stream, workspace,
                   {.x = pooled,
                    .norm = Floats(compressor.norm),
                    .norm_eps = norm_eps,
                    .cos_sin = step.cos_sin,
                    .hadamard = transform == RowTransform::kHadamard,
                    .cache = cache.rows,
                    .rows = step.entry_rows,
                    .targets = step.targets});
  workspace.ResetTo(mark);
}

int64_t CompressWorkspaceBytes(int64_t max_tokens, int64_t hidden_size, int64_t width) {
  // The projections, the entries of at most one per token, and what the operators take.
  return 3 * max_tokens * width * static_cast<int64_t>(sizeof(float)) +
         ops::MatmulWorkspaceBytes(max_tokens, hidden_size) +
         ops::LatentWriteWorkspaceBytes(width) + 4 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
