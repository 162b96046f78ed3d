#include "ops/attention/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "base/align.h"
#include "ops/attention/kernels.h"
#include "ops/attention/kv_layout.h"
#include "ops/attention/sm90/launch.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace attention {
namespace {

const Kernels& BestKernels() {
  static const Kernels& best = *AvailableKernels(DetectCpuFeatures()).front();
  return best;
}

QueryTile TakeTile(Workspace& workspace, int32_t d, float soft_cap) {
  const auto floats = [&](int64_t count) { return workspace.TakeArray<float>(count); };
  QueryTile tile;
  tile.d = d;
  tile.soft_cap = soft_cap;
  tile.q = floats(int64_t{kMaxQueries} * d);
  tile.o = floats(int64_t{kMaxQueries} * d);
  tile.scores = floats(kMaxQueries * kKeysPerBlock);
  tile.max = floats(kMaxQueries);
  tile.new_max = floats(kMaxQueries);
  tile.correction = floats(kMaxQueries);
  tile.sum = floats(kMaxQueries);
  tile.first = workspace.TakeArray<int32_t>(kMaxQueries);
  tile.last = workspace.TakeArray<int32_t>(kMaxQueries);
  tile.k_scratch = floats(int64_t{kKeysPerBlock} * d);
  tile.v_scratch = floats(int64_t{kKeysPerBlock} * d);
  return tile;
}

// The queries of one row that read one kv head, numbered token by token.
struct Group {
  int32_t row;
  int32_t kv_head;
  int32_t first_head;
  int32_t num_heads;
  int32_t token_begin;  // of the row
  int32_t position;     // of the row's first token

  int64_t Token(int32_t query) const { return token_begin + query / num_heads; }
  int32_t Head(int32_t query) const { return first_head + query % num_heads; }
};

void LoadQueries(const PagedAttentionArgs& args, const Group& group, int32_t begin,
                 QueryTile* tile) {
  const int32_t d = tile->d;
  for (int32_t i = 0; i < tile->count; ++i) {
    const int32_t query = begin + i;
    const int32_t head = group.Head(query);
    const float* from =
        args.q.as<float>() + group.Token(query) * args.q_row_stride + int64_t{head} * d;
    for (int32_t j = 0; j < d; ++j) tile->q[i * d + j] = from[j] * args.scale;
    std::fill_n(tile->o + i * d, d, 0.0f);
    tile->max[i] = args.sinks != nullptr ? args.sinks[head] : -INFINITY;
    tile->sum[i] = args.sinks != nullptr ? 1.0f : 0.0f;
    tile->last[i] = group.position + query / group.num_heads;
    tile->first[i] = args.window > 0 ? std::max(0, tile->last[i] - args.window + 1) : 0;
  }
}

void StoreOutputs(const PagedAttentionArgs& args, const Group& group, int32_t begin,
                  const QueryTile& tile) {
  const int64_t num_heads = args.out.shape[1];
  for (int32_t i = 0; i < tile.count; ++i) {
    float* out = args.out.as<float>() +
                 (group.Token(begin + i) * num_heads + group.Head(begin + i)) * tile.d;
    const float inverse = 1.0f / tile.sum[i];
    // Adding 0 makes −0 into 0: whether an invisible key was added to a sum of −0 cannot show.
    for (int32_t j = 0; j < tile.d; ++j) out[j] = tile.o[i * tile.d + j] * inverse + 0.0f;
  }
}

// Points both halves of the block into their pages. A half that no query sees may have no page; it
// borrows the other half's memory.
void PointIntoPages(const PagedAttentionArgs& args, const Group& group, KeyBlock* block) {
  const KvLayerView& cache = args.cache;
  const int32_t* pages = args.rows.PagesOf(group.row);
  const int64_t element = Info(cache.dtype).block_bytes;
  block->k_stride = cache.page_tokens;
  for (int half = 0; half < 2; ++half) {
    const bool seen = half == 0 ? block->begin < kKeysPerHalf : block->end > kKeysPerHalf;
    if (!seen) continue;
    const int32_t position = block->position + half * kKeysPerHalf;
    const PageHead head = HeadOfPage(cache, pages[position / cache.page_tokens], group.kv_head);
    const int32_t slot = position % cache.page_tokens;
    block->k[half] = head.k + slot * element;
    block->v[half] = head.v + int64_t{slot} * cache.head_dim * element;
    if (head.k_scales == nullptr) continue;
    block->k_scales[half] = head.k_scales + slot;
    block->v_scales[half] = head.v_scales + slot;
  }
  const int missing = block->k[0] == nullptr ? 0 : 1;
  if (block->k[missing] != nullptr) return;
  block->k[missing] = block->k[1 - missing];
  block->v[missing] = block->v[1 - missing];
  block->k_scales[missing] = block->k_scales[1 - missing];
  block->v_scales[missing] = block->v_scales[1 - missing];
}

// Pages whose size is no multiple of 16: the block's visible keys are copied, scales applied, into
// the tile's scratch.
void GatherBlock(const PagedAttentionArgs& args, const Group& group, const QueryTile& tile,
                 KeyBlock* block) {
  const KvLayerView& cache = args.cache;
  const int32_t* pages = args.rows.PagesOf(group.row);
  const int32_t d = tile.d;
  std::fill_n(tile.k_scratch, kKeysPerBlock * d, 0.0f);
  for (int32_t j = block->begin; j < block->end; ++j) {
    const int32_t position = block->position + j;
    const int32_t slot = position % cache.page_tokens;
    const PageHead head = HeadOfPage(cache, pages[position / cache.page_tokens], group.kv_head);
    const float k_scale = head.k_scales == nullptr ? 1.0f : head.k_scales[slot];
    const float v_scale = head.v_scales == nullptr ? 1.0f : head.v_scales[slot];
    for (int32_t i = 0; i < d; ++i) {
      tile.k_scratch[i * kKeysPerBlock + j] =
          LoadElement(cache.dtype, head.k, int64_t{i} * cache.page_tokens + slot) * k_scale;
      tile.v_scratch[j * d + i] = LoadElement(cache.dtype, head.v, int64_t{slot} * d + i) * v_scale;
    }
  }
  block->dtype = DType::kF32;
  block->k_stride = kKeysPerBlock;
  for (int half = 0; half < 2; ++half) {
    block->k[half] = reinterpret_cast<const std::byte*>(tile.k_scratch + half * kKeysPerHalf);
    block->v[half] = reinterpret_cast<const std::byte*>(tile.v_scratch + half * kKeysPerHalf * d);
  }
}

bool InPlace(const PagedAttentionArgs& args) { return args.cache.page_tokens % kKeysPerHalf == 0; }

// The block at `position` of keys in [first, last].
KeyBlock BlockAt(const PagedAttentionArgs& args, const Group& group, int32_t position,
                 int32_t first, int32_t last) {
  KeyBlock block;
  block.dtype = args.cache.dtype;
  block.position = position;
  block.begin = std::max(0, first - position);
  block.end = std::min(kKeysPerBlock, last + 1 - position);
  if (InPlace(args)) PointIntoPages(args, group, &block);
  return block;
}

void AttendTile(const Kernels& kernels, const PagedAttentionArgs& args, const Group& group,
                const QueryTile& tile) {
  // Queries are in order of position.
  const int32_t first = tile.first[0];
  const int32_t last = tile.last[tile.count - 1];
  int32_t position = AlignDown(first, kKeysPerBlock);
  KeyBlock block = BlockAt(args, group, position, first, last);
  while (position <= last) {
    position += kKeysPerBlock;
    KeyBlock next;
    if (position <= last) {
      next = BlockAt(args, group, position, first, last);
    } else if (group.kv_head + 1 < args.cache.num_kv_heads) {
      Group neighbour = group;
      ++neighbour.kv_head;
      next = BlockAt(args, neighbour, AlignDown(first, kKeysPerBlock), first, last);
    }
    if (next.k[0] != nullptr) block.next = &next;
    if (!InPlace(args)) GatherBlock(args, group, tile, &block);
    kernels.add_block(tile, block);
    block = next;
  }
}

}  // namespace

std::vector<const Kernels*> AvailableKernels([[maybe_unused]] const CpuFeatures& features) {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  if (features.avx512) found.push_back(&Avx512Kernels());
  if (features.avx2) found.push_back(&Avx2Kernels());
#endif
  found.push_back(&PlainKernels());
  return found;
}

void PagedAttentionWith(const Kernels& kernels, Workspace& workspace,
                        const PagedAttentionArgs& args) {
  const int32_t num_heads = static_cast<int32_t>(args.out.shape[1]);
  const size_t mark = workspace.mark();
  QueryTile tile = TakeTile(workspace, args.cache.head_dim, args.soft_cap);
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    const int32_t begin = args.rows.q_begin[r];
    const int32_t count = args.rows.q_begin[r + 1] - begin;
    for (int32_t g = 0; g < args.cache.num_kv_heads; ++g) {
      const int32_t head_begin = std::max(0, g * args.group_size - args.group_offset);
      const int32_t head_end = std::min(num_heads, (g + 1) * args.group_size - args.group_offset);
      if (head_begin >= head_end) continue;
      const Group group{
          r, g, head_begin, head_end - head_begin, begin, args.rows.kv_len[r] - count};
      const int32_t queries = count * group.num_heads;
      for (int32_t first = 0; first < queries; first += kMaxQueries) {
        tile.count = std::min(kMaxQueries, queries - first);
        LoadQueries(args, group, first, &tile);
        AttendTile(kernels, args, group, tile);
        StoreOutputs(args, group, first, tile);
      }
    }
  }
  workspace.ResetTo(mark);
}

}  // namespace attention

void PagedAttention(Stream stream, Workspace& workspace, const PagedAttentionArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::PagedAttention(stream, args);
  }
  attention::PagedAttentionWith(attention::BestKernels(), workspace, args);
}

void KvWrite(Stream stream, const KvWriteArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::KvWrite(stream, args);
  }
  attention::KvWriteWith(attention::BestKernels(), args);
}

int64_t PagedAttentionWorkspaceBytes(int64_t, int64_t, int32_t head_dim) {
  using attention::kKeysPerBlock;
  using attention::kMaxQueries;
  // TakeTile's eleven arrays, whatever the step holds.
  const int64_t floats = int64_t{2} * (kMaxQueries + kKeysPerBlock) * head_dim +
                         kMaxQueries * kKeysPerBlock + 6 * kMaxQueries;
  return floats * int64_t{sizeof(float)} + 11 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops
