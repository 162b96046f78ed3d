#include "ops/compress/compress.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/compress/sm90/compress.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int32_t kMaxOverlapRatio = 16;

float* StateAt(const CompressorStates& states, int32_t page) {
  DCHECK_GE(page, 0);
  return reinterpret_cast<float*>(states.base + page * states.page_stride);
}

bool Overlaps(int32_t width, int32_t head_dim) { return width != head_dim; }

// N, the slots of a pending state.
int32_t NumSlots(int32_t ratio, bool overlaps, int32_t max_drafts) {
  return (overlaps ? 2 * ratio : 1) + max_drafts;
}

// A state: maximum, sum, weighted sum, [D] each. `from` is the state one token earlier, or null at
// the beginning of a block; it may be `to`.
void AddPlain(float* to, const float* from, const float* kv, const float* gate, const float* ape,
              int32_t d) {
  const int64_t sum = d, weighted = 2 * int64_t{d};
  for (int32_t c = 0; c < d; ++c) {
    const float g = ape == nullptr ? gate[c] : gate[c] + ape[c];
    if (from == nullptr) {
      to[c] = g;
      to[sum + c] = 1.0f;
      to[weighted + c] = kv[c];
      continue;
    }
    const float next = std::max(from[c], g);
    const float keep = std::exp(from[c] - next), add = std::exp(g - next);
    to[c] = next;
    to[sum + c] = from[sum + c] * keep + add;
    to[weighted + c] = from[weighted + c] * keep + kv[c] * add;
  }
}

void FinishPlain(float* out, const float* state, int32_t d) {
  for (int32_t c = 0; c < d; ++c) out[c] = state[2 * int64_t{d} + c] / state[d + c];
}

// A block's slots as the softmax reads them: kv, then gate `gate_offset` floats behind it.
struct BlockSlots {
  const float* slots[kMaxOverlapRatio] = {};
  int64_t gate_offset = 0;
  int32_t count = 0;  // 0: there is no such block
};

void FinishOverlap(float* out, const BlockSlots& previous, const BlockSlots& current, int32_t d) {
  for (int32_t c = 0; c < d; ++c) {
    float most = -std::numeric_limits<float>::infinity();
    for (const BlockSlots* block : {&previous, &current}) {
      for (int32_t s = 0; s < block->count; ++s) {
        most = std::max(most, block->slots[s][block->gate_offset + c]);
      }
    }
    float sum = 0.0f, weighted = 0.0f;
    for (const BlockSlots* block : {&previous, &current}) {
      for (int32_t s = 0; s < block->count; ++s) {
        const float weight = std::exp(block->slots[s][block->gate_offset + c] - most);
        sum += weight;
        weighted += weight * block->slots[s][c];
      }
    }
    out[c] = weighted / sum;
  }
}

class RowCompressor {
 public:
  RowCompressor(const CompressArgs& args, int32_t r)
      : args_(args),
        r_(r),
        head_dim_(static_cast<int32_t>(args.out.cols())),
        width_(static_cast<int32_t>(args.kv.cols())),
        num_slots_(NumSlots(args.ratio, Overlaps(width_, head_dim_), args.max_drafts)),
        pending_(StateAt(args.pending, args.pending_rows.PagesOf(r)[0])) {}

  // Token t; writes an entry to `out` and returns true when it completes one.
  bool Add(int32_t t, float* out) {
    const int32_t position = args_.positions[t], place = position % args_.ratio;
    const float* kv = args_.kv.as<float>() + t * args_.row_stride;
    const float* gate = args_.gate.as<float>() + t * args_.row_stride;
    const float* ape = args_.ape == nullptr ? nullptr : args_.ape + int64_t{place} * width_;
    const bool completes = place + 1 == args_.ratio;
    if (Overlaps(width_, head_dim_)) {
      float* to = TokenSlot(position);
      std::copy_n(kv, width_, to);
      for (int32_t c = 0; c < width_; ++c) {
        to[width_ + c] = ape == nullptr ? gate[c] : gate[c] + ape[c];
      }
      if (completes) FinishBlock(position + 1 - args_.ratio, out);
    } else {
      float* to = PlainSlot(position);
      AddPlain(to, place == 0 ? nullptr : PlainSlot(position - 1), kv, gate, ape, head_dim_);
      if (completes) FinishPlain(out, to, head_dim_);
    }
    return completes;
  }

 private:
  float* PlainSlot(int32_t position) const {
    return pending_ + int64_t{position % num_slots_} * 3 * head_dim_;
  }
  float* TokenSlot(int32_t position) const {
    return pending_ + int64_t{position % num_slots_} * 2 * width_;
  }
  float* OverlapAt(int32_t position) const {
    return StateAt(args_.overlap, args_.overlap_rows.PagesOf(r_)[position / args_.page_tokens]);
  }

  void FinishBlock(int32_t begin, float* out) const {
    BlockSlots current = {.gate_offset = width_, .count = args_.ratio};
    for (int32_t s = 0; s < args_.ratio; ++s) current.slots[s] = TokenSlot(begin + s) + head_dim_;
    FinishOverlap(out, BlockBefore(begin), current, head_dim_);
    const int32_t end = begin + args_.ratio;
    if (end % args_.page_tokens == 0) KeepOverlap(begin, OverlapAt(end - 1));
  }

  // The block that ends at `end`: from its page's state across a border of pages, which may be one
  // that another sequence computed.
  BlockSlots BlockBefore(int32_t end) const {
    if (end == 0) return {};
    BlockSlots block = {.count = args_.ratio};
    if (end % args_.page_tokens != 0) {
      block.gate_offset = width_;
      for (int32_t s = 0; s < args_.ratio; ++s) block.slots[s] = TokenSlot(end - args_.ratio + s);
      return block;
    }
    const float* state = OverlapAt(end - 1);
    block.gate_offset = head_dim_;
    for (int32_t s = 0; s < args_.ratio; ++s) block.slots[s] = state + 2 * int64_t{s} * head_dim_;
    return block;
  }

  // The first halves of a whole block.
  void KeepOverlap(int32_t begin, float* state) const {
    for (int32_t s = 0; s < args_.ratio; ++s) {
      const float* slot = TokenSlot(begin + s);
      float* to = state + 2 * int64_t{s} * head_dim_;
      std::copy_n(slot, head_dim_, to);
      std::copy_n(slot + width_, head_dim_, to + head_dim_);
    }
  }

  const CompressArgs& args_;
  int32_t r_;
  int32_t head_dim_;
  int32_t width_;
  int32_t num_slots_;
  float* pending_;
};

}  // namespace

int64_t PendingStateBytes(int32_t ratio, int32_t width, int32_t head_dim, int32_t max_drafts) {
  const bool overlaps = Overlaps(width, head_dim);
  const int64_t slot = overlaps ? 2 * int64_t{width} : 3 * int64_t{head_dim};
  return NumSlots(ratio, overlaps, max_drafts) * slot * kFloat;
}

int64_t OverlapStateBytes(int32_t ratio, int32_t head_dim) {
  return int64_t{ratio} * 2 * head_dim * kFloat;
}

int32_t ListCompressedEntries(Stream stream, const ListEntriesArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) {
      sm90::ListEntries(stream, args);
      return args.num_tokens;
    }
  }
  int32_t count = 0;
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    const int32_t settled = args.settled == nullptr ? 0 : args.settled[r];
    for (int32_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      const int32_t position = args.positions[t];
      if ((position + 1) % args.ratio != 0) continue;
      const int32_t entry = position / args.ratio;
      args.seq[count] = r;
      args.index[count] = position < settled ? -1 : entry;
      args.entry_positions[count] = entry * args.ratio;
      ++count;
    }
  }
  return count;
}

void Compress(Stream stream, const CompressArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::Compress(stream, args);
  }
  const int64_t head_dim = args.out.cols();
  DCHECK(args.kv.cols() == head_dim || args.kv.cols() == 2 * head_dim);
  DCHECK_EQ(args.page_tokens % args.ratio, 0);
  DCHECK(args.kv.cols() == head_dim || args.ratio <= kMaxOverlapRatio);
  float* out = args.out.as<float>();
  for (int32_t r = 0; r < args.pending_rows.num_rows; ++r) {
    RowCompressor row(args, r);
    for (int32_t t = args.pending_rows.q_begin[r]; t < args.pending_rows.q_begin[r + 1]; ++t) {
      if (row.Add(t, out)) out += head_dim;
    }
  }
}

}  // namespace hayate::ops
