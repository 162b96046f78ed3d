#pragma once
// One head of a token between the loads of it and the stores: its norm and its rotation.

#include "ops/attention/sm90/numbers.cuh"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/eight.cuh"

namespace hayate::ops::sm90 {

// Of a head, in a turn of its lanes.
inline constexpr int kTurnFeatures = 128;

struct RopeKvWriteParams {
  void* q;  // elements of the activation type
  const void* k;
  const void* v;
  int64_t q_row_stride, k_row_stride, v_row_stride;  // elements
  int32_t num_q_heads, num_kv_heads, head_dim, rotary_dim;
  bool interleaved;
  const int32_t* rope_positions;  // null: token t has row t
  const float* cos_sin;
  const float* q_norm;
  const float* k_norm;
  float norm_eps;
  const int32_t* positions;
  AttentionRows rows;
};

// A lane's features of a turn: two runs of neighbours. Those that turn in halves are a run of each
// half; others lie side by side.
struct RunPair {
  int32_t first, second;
  bool turns;
};

template <typename T>
__device__ __forceinline__ void LoadRun(const T* x, float (&out)[8]) {
  const Eight eight = LoadEight(x);
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = eight.v[i];
}
template <typename T>
__device__ __forceinline__ void LoadRun(const T* x, float (&out)[2]) {
  const Pair<T> pair = *reinterpret_cast<const Pair<T>*>(x);
  out[0] = ToFloat(pair.a);
  out[1] = ToFloat(pair.b);
}
template <typename T>
__device__ __forceinline__ void StoreRun(T* x, const float (&in)[8]) {
  StoreEight(x, {{in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7]}});
}
template <typename T>
__device__ __forceinline__ void StoreRun(T* x, const float (&in)[2]) {
  Pair<T> pair;
  FromFloat(in[0], &pair.a);
  FromFloat(in[1], &pair.b);
  *reinterpret_cast<Pair<T>*>(x) = pair;
}

__device__ __forceinline__ void Rotate(float cos, float sin, float* a, float* b) {
  const float turned = *a * cos - *b * sin;
  *b = *b * cos + *a * sin;
  *a = turned;
}

// A head in 32 / kQuads neighbouring lanes, each with kQuads times four features a turn; heads have
// up to kTurns · 128. They are numbered q, then k, then v.
template <typename T, typename TCache, int kQuads, int kTurns>
class TokenHead {
 public:
  __device__ TokenHead(const RopeKvWriteParams& params, int32_t token, int32_t head)
      : params_(params),
        token_(token),
        head_(head),
        entry_(head_ - params.num_q_heads),
        norm_(head_ >= NumHeads() || IsValue() ? nullptr
              : IsQuery()                      ? params.q_norm
                                               : params.k_norm),
        rotates_(params.cos_sin != nullptr && !IsValue() && head_ < NumHeads()) {}

  // The norm's weights and the turns of the token.
  __device__ void ReadFactors() {
    const int64_t row = params_.rope_positions != nullptr ? params_.rope_positions[token_] : token_;
    const float* cos_row = params_.cos_sin + row * params_.rotary_dim;
    EachTurn([&](int turn, int32_t p, const RunPair& runs) {
      if (norm_ != nullptr) {
        LoadRun(norm_ + runs.first, weight_[turn][0]);
        LoadRun(norm_ + runs.second, weight_[turn][1]);
      }
      if (rotates_ && runs.turns) {
        LoadRun(cos_row + p / 2, cos_[turn]);
        LoadRun(cos_row + params_.rotary_dim / 2 + p / 2, sin_[turn]);
      }
    });
  }

  __device__ void Read() {
    if (head_ >= NumHeads()) return;
    const T* in = In();
    EachTurn([&](int turn, int32_t, const RunPair& runs) {
      LoadRun(in + runs.first, x_[turn][0]);
      LoadRun(in + runs.second, x_[turn][1]);
    });
  }

  // All lanes of the warp.
  __device__ void NormAndTurn() {
    if (params_.q_norm != nullptr || params_.k_norm != nullptr) Norm();
    if (!rotates_) return;
    EachTurn([&](int turn, int32_t, const RunPair& runs) {
      if (runs.turns) Turn(cos_[turn], sin_[turn], x_[turn]);
    });
  }

  __device__ bool IsQuery() const { return entry_ < 0; }
  __device__ void WriteQuery() {
    if (IsQuery()) Write(static_cast<T*>(params_.q) + QueryAt());
  }
  // `position` of the token lies in `page`; a negative page takes nothing.
  __device__ void WriteEntry(const PagedCache<TCache>& cache, int32_t page, int32_t position) {
    if (IsQuery() || head_ >= NumHeads() || page < 0) return;
    Write(cache.Keys(page, entry_) + int64_t{position % cache.page_tokens} * params_.head_dim);
  }

 private:
  static constexpr int kLanes = 32 / kQuads;
  static constexpr int kRun = 2 * kQuads;

  template <typename F>
  __device__ void EachTurn(F&& f) const {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int32_t p =
          2 * kRun * (static_cast<int32_t>(threadIdx.x) % kLanes) + kTurnFeatures * turn;
      if (p >= params_.head_dim) break;
      const bool turns = p < params_.rotary_dim;
      f(turn, p,
        turns && !params_.interleaved ? RunPair{p / 2, p / 2 + params_.rotary_dim / 2, true}
                                      : RunPair{p, p + kRun, turns});
    }
  }
  __device__ int32_t NumHeads() const { return params_.num_q_heads + 2 * params_.num_kv_heads; }
  __device__ bool IsValue() const { return entry_ >= params_.num_kv_heads; }
  __device__ int64_t QueryAt() const {
    return token_ * params_.q_row_stride + int64_t{head_} * params_.head_dim;
  }
  __device__ const T* In() const {
    if (IsQuery()) return static_cast<const T*>(params_.q) + QueryAt();
    const T* side = static_cast<const T*>(IsValue() ? params_.v : params_.k);
    const int64_t stride = IsValue() ? params_.v_row_stride : params_.k_row_stride;
    const int32_t head = IsValue() ? entry_ - params_.num_kv_heads : entry_;
    return side + token_ * stride + int64_t{head} * params_.head_dim;
  }

  // Four features that lie or turn together are summed first, so that the order of a sum is the
  // same with any kQuads.
  __device__ void Norm() {
    float squares[kQuads] = {};
    EachTurn([&](int turn, int32_t, const RunPair& runs) {
      const float(&x)[2][kRun] = x_[turn];
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const bool halves = runs.turns && !params_.interleaved;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int straight = 4 * quad + j;
          const float feature =
              halves ? x[j / 2][2 * quad + j % 2] : x[straight / kRun][straight % kRun];
          squares[quad] += feature * feature;
        }
      }
    });
#pragma unroll
    for (int lane = kLanes / 2; lane > 0; lane /= 2) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        squares[quad] += __shfl_xor_sync(0xffffffffu, squares[quad], lane);
      }
    }
#pragma unroll
    for (int other = kQuads / 2; other > 0; other /= 2) {
#pragma unroll
      for (int quad = 0; quad < other; ++quad) squares[quad] += squares[quad + other];
    }
    if (norm_ == nullptr) return;
    const float scale =
        rsqrtf(squares[0] / static_cast<float>(params_.head_dim) + params_.norm_eps);
    EachTurn([&](int turn, int32_t, const RunPair&) {
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        x_[turn][0][j] *= scale * weight_[turn][0][j];
        x_[turn][1][j] *= scale * weight_[turn][1][j];
      }
    });
  }

  __device__ void Turn(const float (&cos)[kRun], const float (&sin)[kRun], float (&x)[2][kRun]) {
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      if (params_.interleaved) {
        Rotate(cos[j], sin[j], &x[2 * j / kRun][2 * j % kRun], &x[2 * j / kRun][2 * j % kRun + 1]);
      } else {
        Rotate(cos[j], sin[j], &x[0][j], &x[1][j]);
      }
    }
  }

  template <typename TOut>
  __device__ void Write(TOut* out) {
    EachTurn([&](int turn, int32_t, const RunPair& runs) {
      StoreRun(out + runs.first, x_[turn][0]);
      StoreRun(out + runs.second, x_[turn][1]);
    });
  }

  const RopeKvWriteParams& params_;
  const int32_t token_, head_;
  const int32_t entry_;  // of keys and values; negative for a query
  const float* const norm_;
  const bool rotates_;
  float x_[kTurns][2][kRun], weight_[kTurns][2][kRun], cos_[kTurns][kRun], sin_[kTurns][kRun];
};

}  // namespace hayate::ops::sm90
