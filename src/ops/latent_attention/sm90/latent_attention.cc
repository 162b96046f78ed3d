#include "ops/latent_attention/sm90/latent_attention.h"

#include <algorithm>
#include <vector>

#include "base/align.h"
#include "base/error.h"
#include "ops/moe/sm90/grouped_product.h"
#include "ops/sparse_attention/sm90/row_write.h"
#include "ops/sparse_attention/sm90/sparse_attention.h"

namespace hayate::ops::sm90 {
namespace {

// Of the queries' absorbed forms and sums that are held at once.
constexpr int64_t kPassBytes = int64_t{256} << 20;
constexpr int64_t kLeastPass = 64;

int64_t TokensPerPass(const LatentProjections& p, int64_t tokens) {
  const int64_t bytes = int64_t{p.num_heads} * (2 * p.latent_dim + p.rope_dim) * 4;
  const int64_t most = AlignDown<int64_t>(kPassBytes / bytes, kLeastPass);
  return std::min(tokens, std::max(most, kLeastPass));
}

// Tokens [begin, begin + count) of [T, heads, width].
template <typename View>
View TokensOf(const View& x, int64_t begin, int64_t count) {
  const int64_t bytes = RowBytes(x.dtype, x.shape[1] * x.shape[2]);
  return {x.data + begin * bytes, x.dtype, {count, x.shape[1], x.shape[2]}};
}

// out[t, h, …] = matrix_h · x[t, h, …]: rows of x and out begin every so many elements.
void HeadProduct(Stream stream, const LatentProjections& p, bool absorb, TensorView out,
                 int64_t out_stride, ConstTensorView x, int64_t x_stride, int64_t tokens) {
  const auto* storage = reinterpret_cast<const std::byte* const*>(p.addresses.data());
  const PackedMatrix& matrix = absorb ? p.absorb[0] : p.value[0];
  const ExpertMatrix w = MatrixOf(matrix, storage + (absorb ? 0 : p.num_heads), matrix.n);
  const int64_t heads = p.num_heads;
  GroupedProduct(
      stream,
      {.out = out,
       .x = x,
       .out_stride = out_stride,
       .x_stride = x_stride,
       .w = w,
       .pairs = EveryPair(tokens, heads, TileTokens(w, x.dtype, x_stride, tokens * heads, heads))});
}

}  // namespace

Status PlaceProjections(Device& device, LatentProjections& projections) {
  if (projections.absorb.empty()) return OkStatus();
  RETURN_IF_ERROR(CheckAlike(projections.absorb, 1));
  RETURN_IF_ERROR(CheckAlike(projections.value, 1));
  std::vector<const std::byte*> addresses;
  for (const PackedMatrix& matrix : projections.absorb) addresses.push_back(matrix.storage.data());
  for (const PackedMatrix& matrix : projections.value) addresses.push_back(matrix.storage.data());
  const size_t bytes = addresses.size() * sizeof(addresses[0]);
  ASSIGN_OR_RETURN(projections.addresses, Buffer::Allocate(device, bytes));
  device.Upload(projections.addresses.data(), addresses.data(), bytes);
  return OkStatus();
}

void LatentAttention(Stream stream, Workspace& workspace, const LatentAttentionArgs& args) {
  const LatentProjections& p = *args.projections;
  const int64_t heads = p.num_heads, l = p.latent_dim, row = p.latent_dim + p.rope_dim;
  const int64_t q_width = p.nope_dim + p.rope_dim, step = TokensPerPass(p, args.q.shape[0]);
  for (int64_t begin = 0; begin < args.q.shape[0]; begin += step) {
    const size_t mark = workspace.mark();
    const int64_t count = std::min(step, args.q.shape[0] - begin);
    const ConstTensorView q = TokensOf(args.q, begin, count);
    const TensorView out = TokensOf(args.out, begin, count);
    const TensorView absorbed = workspace.Take(q.dtype, {count, heads, row});
    const TensorView sums = workspace.Take(q.dtype, {count, heads, l});
    HeadProduct(stream, p, true, absorbed, row, q, q_width, count);
    CopyFeatures(
        stream,
        {.to = absorbed, .from = q, .to_begin = l, .from_begin = p.nope_dim, .count = p.rope_dim});
    // Every row is an "entry" of one token.
    SparseAttention(
        stream, workspace,
        {.out = sums,
         .q = absorbed,
         .positions = args.positions + begin,
         .entry_cache = args.cache,
         .entry_rows = args.rows,
         .first_token = static_cast<int32_t>(begin),
         .ratio = 1,
         .selected =
             args.selected == nullptr ? nullptr : args.selected + begin * args.selected_stride,
         .selected_count = args.selected == nullptr ? nullptr : args.selected_count + begin,
         .selected_stride = args.selected_stride,
         .scale = args.scale});
    HeadProduct(stream, p, false, out, p.value_dim, sums, l, count);
    workspace.ResetTo(mark);
  }
}

int64_t LatentAttentionWorkspaceBytes(const LatentProjections& projections, int64_t max_tokens) {
  const LatentProjections& p = projections;
  return TokensPerPass(p, max_tokens) * p.num_heads * (2 * p.latent_dim + p.rope_dim) * 4 +
         SparseAttentionWorkspaceBytes(p.latent_dim) +
         2 * static_cast<int64_t>(Workspace::kAlignment);
}

void LatentAppend(Stream stream, const LatentAppendArgs& args) {
  WriteRows(stream, {.x = args.x,
                     .norm = args.norm,
                     .norm_width = args.cache.width - args.cache.rotary,
                     .norm_eps = args.norm_eps,
                     .cos_sin = args.cos_sin,
                     .cache = args.cache,
                     .rows = args.rows,
                     .index = args.positions});
}

}  // namespace hayate::ops::sm90
