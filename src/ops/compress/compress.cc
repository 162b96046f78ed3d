#include "ops/compress/compress.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace hayate::ops {
namespace {

constexpr int64_t kFloat = sizeof(float);

float* StateAt(const CompressorStates& states, int32_t page) {
  DCHECK_GE(page, 0);
  return reinterpret_cast<float*>(states.base + page * states.page_stride);
}

// state: maximum, sum, weighted sum, [D] each.
void AddPlain(float* state, const float* kv, const float* gate, const float* ape, bool first,
              int32_t d) {
  float* most = state;
  float* sum = state + d;
  float* weighted = state + 2 * int64_t{d};
  for (int32_t c = 0; c < d; ++c) {
    const float g = ape == nullptr ? gate[c] : gate[c] + ape[c];
    if (first) {
      most[c] = g;
      sum[c] = 1.0f;
      weighted[c] = kv[c];
      continue;
    }
    const float next = std::max(most[c], g);
    const float keep = std::exp(most[c] - next), add = std::exp(g - next);
    most[c] = next;
    sum[c] = sum[c] * keep + add;
    weighted[c] = weighted[c] * keep + kv[c] * add;
  }
}

void FinishPlain(float* out, const float* state, int32_t d) {
  for (int32_t c = 0; c < d; ++c) out[c] = state[2 * int64_t{d} + c] / state[d + c];
}

void AddOverlap(float* state, const float* kv, const float* gate, const float* ape, int32_t slot,
                int32_t width) {
  float* to = state + int64_t{slot} * 2 * width;
  std::copy_n(kv, width, to);
  for (int32_t c = 0; c < width; ++c) to[width + c] = ape == nullptr ? gate[c] : gate[c] + ape[c];
}

// `previous` [ratio, 2, D] or null, `current` [ratio, 2, 2D].
void FinishOverlap(float* out, const float* previous, const float* current, int32_t ratio,
                   int32_t d) {
  const int64_t width = 2 * int64_t{d};
  for (int32_t c = 0; c < d; ++c) {
    const auto old_gate = [&](int32_t s) { return previous[(2 * int64_t{s} + 1) * d + c]; };
    const auto new_gate = [&](int32_t s) { return current[(2 * int64_t{s} + 1) * width + d + c]; };
    float most = -std::numeric_limits<float>::infinity();
    for (int32_t s = 0; previous != nullptr && s < ratio; ++s) most = std::max(most, old_gate(s));
    for (int32_t s = 0; s < ratio; ++s) most = std::max(most, new_gate(s));
    float sum = 0.0f, weighted = 0.0f;
    for (int32_t s = 0; previous != nullptr && s < ratio; ++s) {
      const float weight = std::exp(old_gate(s) - most);
      sum += weight;
      weighted += weight * previous[2 * int64_t{s} * d + c];
    }
    for (int32_t s = 0; s < ratio; ++s) {
      const float weight = std::exp(new_gate(s) - most);
      sum += weight;
      weighted += weight * current[2 * int64_t{s} * width + d + c];
    }
    out[c] = weighted / sum;
  }
}

// The first halves of a whole block.
void KeepOverlap(float* overlap, const float* current, int32_t ratio, int32_t d) {
  for (int32_t s = 0; s < 2 * ratio; ++s) {  // kv and gate of each slot
    std::copy_n(current + int64_t{s} * 2 * d, d, overlap + int64_t{s} * d);
  }
}

class RowCompressor {
 public:
  RowCompressor(const CompressArgs& args, int32_t r)
      : args_(args),
        r_(r),
        head_dim_(static_cast<int32_t>(args.out.cols())),
        width_(static_cast<int32_t>(args.kv.cols())),
        pending_(StateAt(args.pending, args.pending_rows.PagesOf(r)[0])) {}

  // Token t; writes an entry to `out` and returns true when it completes one.
  bool Add(int32_t t, float* out) {
    const int32_t position = args_.positions[t], slot = position % args_.ratio;
    const float* kv = args_.kv.as<float>() + t * args_.row_stride;
    const float* gate = args_.gate.as<float>() + t * args_.row_stride;
    const float* ape = args_.ape == nullptr ? nullptr : args_.ape + int64_t{slot} * width_;
    const bool overlaps = width_ != head_dim_;
    if (overlaps) {
      AddOverlap(pending_, kv, gate, ape, slot, width_);
    } else {
      AddPlain(pending_, kv, gate, ape, slot == 0, head_dim_);
    }
    if (slot + 1 < args_.ratio) return false;
    if (overlaps) {
      const int32_t block_begin = position + 1 - args_.ratio;
      FinishOverlap(out, block_begin == 0 ? nullptr : OverlapAt(block_begin - 1), pending_,
                    args_.ratio, head_dim_);
      KeepOverlap(OverlapAt(position), pending_, args_.ratio, head_dim_);
    } else {
      FinishPlain(out, pending_, head_dim_);
    }
    return true;
  }

 private:
  float* OverlapAt(int32_t position) const {
    return StateAt(args_.overlap, args_.overlap_rows.PagesOf(r_)[position / args_.page_tokens]);
  }

  const CompressArgs& args_;
  int32_t r_;
  int32_t head_dim_;
  int32_t width_;
  float* pending_;
};

}  // namespace

int64_t PendingStateBytes(int32_t ratio, int32_t width, int32_t head_dim) {
  return width == head_dim ? 3 * int64_t{head_dim} * kFloat : int64_t{ratio} * 2 * width * kFloat;
}

int64_t OverlapStateBytes(int32_t ratio, int32_t head_dim) {
  return int64_t{ratio} * 2 * head_dim * kFloat;
}

int32_t ListCompressedEntries(const AttentionRows& rows, const int32_t* positions, int32_t ratio,
                              int32_t* seq, int32_t* index, int32_t* entry_positions) {
  int32_t count = 0;
  for (int32_t r = 0; r < rows.num_rows; ++r) {
    for (int32_t t = rows.q_begin[r]; t < rows.q_begin[r + 1]; ++t) {
      if ((positions[t] + 1) % ratio != 0) continue;
      seq[count] = r;
      index[count] = positions[t] / ratio;
      entry_positions[count] = index[count] * ratio;
      ++count;
    }
  }
  return count;
}

void Compress(Stream, const CompressArgs& args) {
  const int64_t head_dim = args.out.cols();
  DCHECK(args.kv.cols() == head_dim || args.kv.cols() == 2 * head_dim);
  DCHECK_EQ(args.page_tokens % args.ratio, 0);
  float* out = args.out.as<float>();
  for (int32_t r = 0; r < args.pending_rows.num_rows; ++r) {
    RowCompressor row(args, r);
    for (int32_t t = args.pending_rows.q_begin[r]; t < args.pending_rows.q_begin[r + 1]; ++t) {
      if (row.Add(t, out)) out += head_dim;
    }
  }
}

}  // namespace hayate::ops
