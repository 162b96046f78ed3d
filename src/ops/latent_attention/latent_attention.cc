#include "ops/latent_attention/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/detail/lanes.h"
#include "ops/latent_attention/sm90/latent_attention.h"
#include "ops/norm/rms_norm.h"
#include "ops/sparse_attention/head_rotation.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

constexpr int32_t kBlockKeys = 32;
// Queries whose absorbed forms are held at once: enough to read the up projections once for many.
constexpr int64_t kTokensPerPass = 32;

// What a query's heads know of the keys seen so far.
struct Softmax {
  float* max = nullptr;  // [Hq]
  float* sum = nullptr;  // [Hq]
};

// Weights `scores` [count] of one head and adds them to the running softmax; scales what `out`
// [width] holds so far.
void Weigh(float* scores, int64_t count, float& max, float& sum, float* out, int64_t width) {
  float most = max;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, scores[i]);
  const float correction = most == max ? 1.0f : std::exp(max - most);
  float added = 0.0f;
  for (int64_t i = 0; i < count; ++i) added += scores[i] = std::exp(scores[i] - most);
  sum = sum * correction + added;
  max = most;
  if (correction == 1.0f) return;
  for (int64_t i = 0; i < width; ++i) out[i] *= correction;
}

void Begin(const Softmax& state, int64_t heads, float* out, int64_t width) {
  std::fill_n(state.max, heads, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, heads, 0.0f);
  std::fill_n(out, heads * width, 0.0f);
}

void Finish(const Softmax& state, int64_t heads, float* out, int64_t width) {
  for (int64_t h = 0; h < heads; ++h) {
    const float inverse = 1.0f / state.sum[h];
    for (int64_t i = 0; i < width; ++i) out[h * width + i] *= inverse;
  }
}

// Row `index` of a sequence with these pages, as fp32: in the cache where it is stored so, else in
// `scratch`.
const float* LoadRow(const LatentLayerView& cache, const int32_t* pages, int32_t index,
                     float* scratch) {
  const int32_t page = pages[index / cache.page_rows], row = index % cache.page_rows;
  if (cache.format == RowFormat::kF32) {
    return reinterpret_cast<const float*>(cache.base + page * cache.page_stride) +
           int64_t{row} * cache.width;
  }
  LoadLatentRow(cache, page, row, scratch);
  return scratch;
}

struct Dims {
  explicit Dims(const LatentProjections& p)
      : heads(p.num_heads), l(p.latent_dim), dn(p.nope_dim), r(p.rope_dim), dv(p.value_dim) {}
  int64_t heads, l, dn, r, dv;
  int64_t q() const { return dn + r; }
  int64_t row() const { return l + r; }
};

// One token against its keys: q [Hq, L + R], out [Hq, L].
void AttendRows(const LatentAttentionArgs& args, const int32_t* pages, int64_t token,
                const float* q, float* out, const Softmax& state, float* scores, float* scratch) {
  const Dims d(*args.projections);
  const bool listed = args.selected != nullptr;
  const int32_t* list = listed ? args.selected + token * args.selected_stride : nullptr;
  const int32_t keys = listed ? args.selected_count[token] : args.positions[token] + 1;
  const float* rows[kBlockKeys];
  Begin(state, d.heads, out, d.l);
  for (int32_t begin = 0; begin < keys; begin += kBlockKeys) {
    const int32_t count = std::min(kBlockKeys, keys - begin);
    for (int32_t i = 0; i < count; ++i) {
      rows[i] =
          LoadRow(args.cache, pages, listed ? list[begin + i] : begin + i, scratch + i * d.row());
    }
    for (int64_t h = 0; h < d.heads; ++h) {
      const float* head = q + h * d.row();
      float* sums = out + h * d.l;
      for (int32_t i = 0; i < count; ++i) {
        scores[i] = args.scale * detail::Dot(head, rows[i], d.row());
      }
      Weigh(scores, count, state.max[h], state.sum[h], sums, d.l);
      for (int32_t i = 0; i < count; ++i) detail::AddScaled(sums, scores[i], rows[i], d.l);
    }
  }
  Finish(state, d.heads, out, d.l);
}

// to[i] [count] = from[i · stride, …) for `tokens` tokens.
void CopyColumns(const float* from, int64_t stride, int64_t tokens, int64_t count, float* to,
                 int64_t to_stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(to + t * to_stride, from + t * stride, static_cast<size_t>(count) * sizeof(float));
  }
}

// Tokens [begin, begin + count) in the absorbed form.
void Absorbed(Stream stream, Workspace& workspace, const LatentAttentionArgs& args, int64_t begin,
              int64_t count) {
  const size_t mark = workspace.mark();
  const LatentProjections& p = *args.projections;
  const Dims d(p);
  const TensorView q_rows = workspace.Take(DType::kF32, {count, d.heads, d.row()});
  const TensorView sums = workspace.Take(DType::kF32, {count, d.heads, d.l});
  const TensorView part = workspace.Take(DType::kF32, {count, std::max(d.dn, d.l)});
  float* scratch = workspace.TakeArray<float>(kBlockKeys * d.row());
  float* scores = workspace.TakeArray<float>(kBlockKeys);
  const Softmax state = {workspace.TakeArray<float>(d.heads), workspace.TakeArray<float>(d.heads)};
  const float* q = args.q.as<float>() + begin * d.heads * d.q();
  for (int64_t h = 0; h < d.heads; ++h) {
    const TensorView nope{part.data, DType::kF32, {count, d.dn}};
    float* to = q_rows.as<float>() + h * d.row();
    CopyColumns(q + h * d.q(), d.heads * d.q(), count, d.dn, nope.as<float>(), d.dn);
    Matmul(stream, workspace,
           {.out = {reinterpret_cast<std::byte*>(to), DType::kF32, {count, d.l}},
            .x = nope,
            .w = &p.absorb[static_cast<size_t>(h)],
            .out_row_stride = d.heads * d.row()});
    CopyColumns(q + h * d.q() + d.dn, d.heads * d.q(), count, d.r, to + d.l, d.heads * d.row());
  }
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    const int64_t first = std::max<int64_t>(begin, args.rows.q_begin[r]);
    const int64_t last = std::min<int64_t>(begin + count, args.rows.q_begin[r + 1]);
    for (int64_t t = first; t < last; ++t) {
      AttendRows(args, args.rows.PagesOf(r), t,
                 q_rows.as<float>() + (t - begin) * d.heads * d.row(),
                 sums.as<float>() + (t - begin) * d.heads * d.l, state, scores, scratch);
    }
  }
  float* out = args.out.as<float>() + begin * d.heads * d.dv;
  for (int64_t h = 0; h < d.heads; ++h) {
    const TensorView latent{part.data, DType::kF32, {count, d.l}};
    CopyColumns(sums.as<float>() + h * d.l, d.heads * d.l, count, d.l, latent.as<float>(), d.l);
    Matmul(stream, workspace,
           {.out = {reinterpret_cast<std::byte*>(out + h * d.dv), DType::kF32, {count, d.dv}},
            .x = latent,
            .w = &p.value[static_cast<size_t>(h)],
            .out_row_stride = d.heads * d.dv});
  }
  workspace.ResetTo(mark);
}

// Row r in the materialised form: blocks of keys outside, its queries inside.
void Materialised(Stream stream, Workspace& workspace, const LatentAttentionArgs& args, int32_t r) {
  const size_t mark = workspace.mark();
  const Dims d(*args.projections);
  const int64_t begin = args.rows.q_begin[r], tokens = args.rows.q_begin[r + 1] - begin;
  if (tokens == 0) return;
  const int32_t keys = args.positions[begin + tokens - 1] + 1;
  const int64_t width = d.dn + d.dv;
  const TensorView latents = workspace.Take(DType::kF32, {kBlockKeys, d.l});
  const TensorView turned = workspace.Take(DType::kF32, {kBlockKeys, d.r});
  const TensorView heads = workspace.Take(DType::kF32, {kBlockKeys, d.heads * width});
  float* scratch = workspace.TakeArray<float>(d.row());
  float* scores = workspace.TakeArray<float>(kBlockKeys);
  float* max = workspace.TakeArray<float>(tokens * d.heads);
  float* sum = workspace.TakeArray<float>(tokens * d.heads);
  float* out = args.out.as<float>() + begin * d.heads * d.dv;
  const float* q = args.q.as<float>() + begin * d.heads * d.q();
  Begin({max, sum}, tokens * d.heads, out, d.dv);
  for (int32_t block = 0; block < keys; block += kBlockKeys) {
    const int32_t count = std::min(kBlockKeys, keys - block);
    for (int32_t i = 0; i < count; ++i) {
      const float* row = LoadRow(args.cache, args.rows.PagesOf(r), block + i, scratch);
      std::copy_n(row, d.l, latents.as<float>() + i * d.l);
      std::copy_n(row + d.l, d.r, turned.as<float>() + i * d.r);
    }
    Matmul(stream, workspace,
           {.out = {heads.data, DType::kF32, {count, d.heads * width}},
            .x = TensorView{latents.data, DType::kF32, {count, d.l}},
            .w = &*args.projections->expand});
    for (int64_t t = 0; t < tokens; ++t) {
      const int32_t visible = std::min(count, args.positions[begin + t] + 1 - block);
      for (int64_t h = 0; h < d.heads && visible > 0; ++h) {
        const int64_t query = t * d.heads + h;
        const float* head = q + query * d.q();
        const float* kv = heads.as<float>() + h * width;
        for (int32_t i = 0; i < visible; ++i) {
          scores[i] = args.scale * (detail::Dot(head, kv + i * d.heads * width, d.dn) +
                                    detail::Dot(head + d.dn, turned.as<float>() + i * d.r, d.r));
        }
        Weigh(scores, visible, max[query], sum[query], out + query * d.dv, d.dv);
        for (int32_t i = 0; i < visible; ++i) {
          detail::AddScaled(out + query * d.dv, scores[i], kv + i * d.heads * width + d.dn, d.dv);
        }
      }
    }
  }
  Finish({max, sum}, tokens * d.heads, out, d.dv);
  workspace.ResetTo(mark);
}

}  // namespace

int64_t LatentProjections::bytes() const {
  size_t sum = expand ? expand->storage.size() : 0;
  for (const PackedMatrix& matrix : absorb) sum += matrix.storage.size();
  for (const PackedMatrix& matrix : value) sum += matrix.storage.size();
  return static_cast<int64_t>(sum);
}

Status PlaceProjections(Device& device, LatentProjections& projections) {
  if constexpr (kCudaBuild) {
    if (device.kind() == DeviceKind::kCuda) return sm90::PlaceProjections(device, projections);
  }
  return OkStatus();
}

void LatentAttention(Stream stream, Workspace& workspace, const LatentAttentionArgs& args) {
  if (args.projections->num_heads == 0) return;
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::LatentAttention(stream, workspace, args);
  }
  if (args.form == LatentForm::kMaterialised) {
    DCHECK(args.selected == nullptr && args.projections->expand);
    for (int32_t r = 0; r < args.rows.num_rows; ++r) Materialised(stream, workspace, args, r);
    return;
  }
  const int64_t tokens = args.q.shape[0];
  for (int64_t begin = 0; begin < tokens; begin += kTokensPerPass) {
    Absorbed(stream, workspace, args, begin, std::min(kTokensPerPass, tokens - begin));
  }
}

int64_t LatentAttentionWorkspaceBytes(const LatentProjections& projections, int64_t max_tokens) {
  const Dims d(projections);
  const int64_t pass = std::min(max_tokens, kTokensPerPass);
  const int64_t absorbed = pass * (d.heads * (d.row() + d.l) + std::max(d.dn, d.l)) +
                           kBlockKeys * (d.row() + 1) + 2 * d.heads;
  const int64_t materialised =
      kBlockKeys * (d.row() + d.heads * (d.dn + d.dv) + 1) + d.row() + 2 * max_tokens * d.heads;
  const int64_t product =
      std::max({MatmulWorkspaceBytes(pass, d.dn), MatmulWorkspaceBytes(pass, d.l),
                MatmulWorkspaceBytes(kBlockKeys, d.l)});
  const int64_t bytes = std::max(absorbed, materialised) * static_cast<int64_t>(sizeof(float)) +
                        product + 8 * static_cast<int64_t>(Workspace::kAlignment);
  if constexpr (kCudaBuild) {
    if (d.heads > 0) {
      return std::max(bytes, sm90::LatentAttentionWorkspaceBytes(projections, max_tokens));
    }
  }
  return bytes;
}

void LatentAppend(Stream stream, Workspace& workspace, const LatentAppendArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::LatentAppend(stream, args);
  }
  const size_t mark = workspace.mark();
  const int64_t width = args.cache.width, r = args.cache.rotary, l = width - r;
  const TensorView latent = workspace.Take(DType::kF32, {1, l});
  const TensorView row = workspace.Take(DType::kF32, {1, width});
  for (int32_t i = 0; i < args.rows.num_rows; ++i) {
    for (int64_t t = args.rows.q_begin[i]; t < args.rows.q_begin[i + 1]; ++t) {
      const float* x = args.x.as<float>() + t * width;
      std::copy_n(x, width, row.as<float>());
      std::copy_n(x, l, latent.as<float>());
      RmsNorm(stream, {.out = {row.data, DType::kF32, {1, l}},
                       .x = latent,
                       .weight = args.norm,
                       .eps = args.norm_eps});
      RotatePairs(row.as<float>() + l, args.cos_sin + t * r, static_cast<int32_t>(r),
                  Rotation::kForward);
      const int32_t position = args.positions[t];
      StoreLatentRow(args.cache, args.rows.PagesOf(i)[position / args.cache.page_rows],
                     position % args.cache.page_rows, row.as<float>());
    }
  }
  workspace.ResetTo(mark);
}

}  // namespace hayate::ops
