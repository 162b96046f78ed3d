// Compressors in two launches. First the entries, a block per token that completes one: what its
// block has of this step's tokens comes from the projections, the rest from the states. Then the
// states, a block per row: only what the last slots keep is written, since all before them would be
// written over. A channel belongs to one thread throughout.
// Order  tokens of a block one by one, as they enter: the bits do not depend on the chunks

#include "ops/compress/sm90/compress.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 128;

struct Params {
  CompressArgs args;
  int32_t head_dim, width, num_slots;
};

// A row of the step and its states.
class Row {
 public:
  __device__ Row(const Params& p, int32_t row)
      : p_(p),
        first_token(p.args.pending_rows.q_begin[row]),
        num_tokens(p.args.pending_rows.q_begin[row + 1] - first_token),
        first(num_tokens == 0 ? 0 : p.args.positions[first_token]) {
    pending_ = StateAt(p.args.pending, p.args.pending_rows.PagesOf(row)[0]);
    if (p.width != p.head_dim) overlap_pages_ = p.args.overlap_rows.PagesOf(row);
  }

  // Channel c of W of the token at a position of this step.
  __device__ float Kv(int32_t position, int c) const {
    return reinterpret_cast<const float*>(
        p_.args.kv.data)[TokenAt(position) * p_.args.row_stride + c];
  }
  __device__ float Gate(int32_t position, int c) const {
    const float gate = reinterpret_cast<const float*>(
        p_.args.gate.data)[TokenAt(position) * p_.args.row_stride + c];
    if (p_.args.ape == nullptr) return gate;
    return gate + p_.args.ape[int64_t{position % p_.args.ratio} * p_.width + c];
  }
  __device__ float* PlainSlot(int32_t position) const {
    return pending_ + int64_t{position % p_.num_slots} * 3 * p_.head_dim;
  }
  __device__ float* TokenSlot(int32_t position) const {
    return pending_ + int64_t{position % p_.num_slots} * 2 * p_.width;
  }
  __device__ float* OverlapAt(int32_t position) const {
    return StateAt(p_.args.overlap, overlap_pages_[position / p_.args.page_tokens]);
  }

 private:
  static __device__ float* StateAt(const CompressorStates& states, int32_t page) {
    return reinterpret_cast<float*>(states.base + max(page, 0) * states.page_stride);
  }
  __device__ int64_t TokenAt(int32_t position) const { return first_token + position - first; }

  const Params& p_;
  float* pending_;
  const int32_t* overlap_pages_ = nullptr;

 public:
  const int32_t first_token, num_tokens;
  const int32_t first;  // position
};

// The running softmax of one channel.
struct Pool {
  float most, sum, weighted;

  __device__ void Add(float kv, float gate) {
    const float next = fmaxf(most, gate);
    const float keep = expf(most - next), add = expf(gate - next);
    most = next;
    sum = sum * keep + add;
    weighted = weighted * keep + kv * add;
  }
};
// Of the positions [block begin, position], which end in this step.
__device__ Pool PoolTo(const Params& p, const Row& row, int32_t position, int c) {
  const int32_t begin = position / p.args.ratio * p.args.ratio;
  int32_t next = begin;
  Pool pool = {};
  if (begin >= row.first) {
    pool = {row.Gate(begin, c), 1.0f, row.Kv(begin, c)};
    ++next;
  } else {
    const float* slot = row.PlainSlot(row.first - 1);
    pool = {slot[c], slot[p.head_dim + c], slot[2 * p.head_dim + c]};
    next = row.first;
  }
  for (; next <= position; ++next) pool.Add(row.Kv(next, c), row.Gate(next, c));
  return pool;
}

struct Slot {
  float kv, gate;
};
// Channel c (of the first half) of the block before the one that begins at `begin`.
__device__ Slot SlotBefore(const Params& p, const Row& row, int32_t begin, int32_t position,
                           int c) {
  if (position >= row.first) return {row.Kv(position, c), row.Gate(position, c)};
  // A page's state is there once a step has gone past its end: not of a page that ends in this one.
  if (begin % p.args.page_tokens != 0 || begin > row.first) {
    const float* slot = row.TokenSlot(position);
    return {slot[c], slot[p.width + c]};
  }
  const float* state =
      row.OverlapAt(begin - 1) + 2 * int64_t{position - begin + p.args.ratio} * p.head_dim;
  return {state[c], state[p.head_dim + c]};
}
// Channel c (of the first half) of the block itself: the last halves count.
__device__ Slot SlotOf(const Params& p, const Row& row, int32_t position, int c) {
  const int channel = p.head_dim + c;
  if (position >= row.first) return {row.Kv(position, channel), row.Gate(position, channel)};
  const float* slot = row.TokenSlot(position);
  return {slot[channel], slot[p.width + channel]};
}

__device__ float OverlapEntry(const Params& p, const Row& row, int32_t begin, int c) {
  const int32_t ratio = p.args.ratio;
  float most = -INFINITY;
  for (int32_t s = begin == 0 ? 0 : begin - ratio; s < begin; ++s) {
    most = fmaxf(most, SlotBefore(p, row, begin, s, c).gate);
  }
  for (int32_t s = begin; s < begin + ratio; ++s) most = fmaxf(most, SlotOf(p, row, s, c).gate);
  float sum = 0.0f, weighted = 0.0f;
  const auto add = [&](const Slot& slot) {
    const float weight = expf(slot.gate - most);
    sum += weight;
    weighted = __fadd_rn(weighted, __fmul_rn(weight, slot.kv));
  };
  for (int32_t s = begin == 0 ? 0 : begin - ratio; s < begin; ++s) {
    add(SlotBefore(p, row, begin, s, c));
  }
  for (int32_t s = begin; s < begin + ratio; ++s) add(SlotOf(p, row, s, c));
  return weighted / sum;
}

__global__ void __launch_bounds__(kThreads) EntryKernel(const __grid_constant__ Params p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const auto t = static_cast<int32_t>(blockIdx.x);
  const int32_t position = p.args.positions[t];
  if ((position + 1) % p.args.ratio != 0) return;
  const Row row(p, RowOfToken(p.args.pending_rows, t));
  float* out = reinterpret_cast<float*>(p.args.out.data) + int64_t{t} * p.head_dim;
  for (int c = threadIdx.x; c < p.head_dim; c += kThreads) {
    if (p.width == p.head_dim) {
      const Pool pool = PoolTo(p, row, position, c);
      out[c] = pool.weighted / pool.sum;
    } else {
      out[c] = OverlapEntry(p, row, position + 1 - p.args.ratio, c);
    }
  }
}

// Grid: [rows, channels / kThreads].
__global__ void __launch_bounds__(kThreads) StateKernel(const __grid_constant__ Params p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const Row row(p, static_cast<int32_t>(blockIdx.x));
  const int c = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (row.num_tokens == 0) return;
  const int32_t end = row.first + row.num_tokens;
  const int32_t kept = max(row.first, end - p.num_slots);
  if (p.width == p.head_dim) {
    if (c >= p.head_dim) return;
    // Slots are written from the last on: an earlier one starts from a state that only it may
    // overwrite.
    Pool pool = PoolTo(p, row, kept, c);
    for (int32_t position = kept; position < end; ++position) {
      if (position > kept) {
        if (position % p.args.ratio == 0) {
          pool = {row.Gate(position, c), 1.0f, row.Kv(position, c)};
        } else {
          pool.Add(row.Kv(position, c), row.Gate(position, c));
        }
      }
      float* slot = row.PlainSlot(position);
      slot[c] = pool.most;
      slot[p.head_dim + c] = pool.sum;
      slot[2 * p.head_dim + c] = pool.weighted;
    }
    return;
  }
  if (c >= p.width) return;
  // States of pages that end in this step, before slots that they need are overwritten.
  for (int32_t page_end = (row.first / p.args.page_tokens + 1) * p.args.page_tokens;
       page_end <= end && c < p.head_dim; page_end += p.args.page_tokens) {
    float* state = row.OverlapAt(page_end - 1);
    for (int32_t s = 0; s < p.args.ratio; ++s) {
      const int32_t position = page_end - p.args.ratio + s;
      Slot slot;
      if (position >= row.first) {
        slot = {row.Kv(position, c), row.Gate(position, c)};
      } else {
        const float* token = row.TokenSlot(position);
        slot = {token[c], token[p.width + c]};
      }
      state[2 * int64_t{s} * p.head_dim + c] = slot.kv;
      state[(2 * int64_t{s} + 1) * p.head_dim + c] = slot.gate;
    }
  }
  for (int32_t position = kept; position < end; ++position) {
    float* slot = row.TokenSlot(position);
    slot[c] = row.Kv(position, c);
    slot[p.width + c] = row.Gate(position, c);
  }
}

__global__ void __launch_bounds__(kThreads) ListKernel(const __grid_constant__ ListEntriesArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const auto t = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (t >= a.num_tokens) return;
  const int32_t position = a.positions[t];
  const int32_t row = RowOfToken(a.rows, t);
  const bool completes = (position + 1) % a.ratio == 0;
  const bool settled = a.settled != nullptr && position < a.settled[row];
  a.seq[t] = row;
  a.index[t] = completes && !settled ? position / a.ratio : -1;
  a.entry_positions[t] = completes ? position / a.ratio * a.ratio : 0;
}

}  // namespace

void Compress(Stream stream, const CompressArgs& args) {
  const int64_t tokens = args.kv.rows();
  if (tokens == 0) return;
  const auto head_dim = static_cast<int32_t>(args.out.cols());
  const auto width = static_cast<int32_t>(args.kv.cols());
  CHECK(args.kv.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  const int32_t slots = (width == head_dim ? 1 : 2 * args.ratio) + args.max_drafts;
  const Params params = {args, head_dim, width, slots};
  LaunchDependent(stream, EntryKernel, static_cast<unsigned>(tokens), kThreads, 0, params);
  const dim3 grid(static_cast<unsigned>(args.pending_rows.num_rows),
                  static_cast<unsigned>(CeilDiv(width, kThreads)));
  LaunchDependent(stream, StateKernel, grid, kThreads, 0, params);
  CUDA_CHECK_LAUNCH(stream, "compress", tokens, width, args.ratio);
}

void ListEntries(Stream stream, const ListEntriesArgs& args) {
  if (args.num_tokens == 0) return;
  LaunchDependent(stream, ListKernel, static_cast<unsigned>(CeilDiv(args.num_tokens, kThreads)),
                  kThreads, 0, args);
  CUDA_CHECK_LAUNCH(stream, "list_entries", args.num_tokens, args.ratio);
}

}  // namespace hayate::ops::sm90
