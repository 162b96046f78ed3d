// Engram in three launches. Remember: a thread per token. Gather: a block per token and table row,
// which hashes the token's last ids and reads one row over the bus, 4 codes a thread. Gate: a block
// per token and stream.
// Traffic  T · (N − 1) · heads · width · 33 / 32 bytes over the bus: 6,336 a token and layer for
// the
//          released model
// Bound    the bus's latency while few tokens run, its rate in a prefill

#include "ops/engram/sm90/engram.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/sparse_attention/sm90/vector.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int kCodes = 4;  // of a thread
constexpr int kScaleColumns = 32;
constexpr int kStreams = 4;
constexpr float kNormEps = 1e-20f;
constexpr float kLeastDot = 1e-6f;

__device__ int32_t* EntryAt(const EngramHistory& history, int32_t row, int32_t position) {
  // A padded row's table names the scratch page.
  const int32_t page = max(history.rows.PagesOf(row)[position / history.page_tokens], 0);
  return reinterpret_cast<int32_t*>(history.base + page * history.page_stride) +
         position % history.page_tokens;
}

__global__ void __launch_bounds__(kThreads)
    RememberKernel(const __grid_constant__ EngramHistory history, const int32_t* token_ids,
                   const int32_t* token_map) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const auto t = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (t >= history.num_tokens) return;
  *EntryAt(history, RowOfToken(history.rows, t), history.positions[t]) = token_map[token_ids[t]];
}

struct GatherParams {
  EngramHistory history;
  std::byte* out;
  const uint8_t *table, *scales;
  const int64_t* numbers;
  int32_t ngram, heads, width, padding;
};

// Which row of the table the token reads for n-gram and head `index`.
__device__ int64_t TableRow(const GatherParams& p, int32_t t, int32_t index) {
  const int32_t row = RowOfToken(p.history.rows, t), position = p.history.positions[t];
  const int32_t count = (p.ngram - 1) * p.heads, last = index / p.heads + 1;
  int64_t accumulated = 0;
  for (int32_t s = 0; s <= last; ++s) {
    const int64_t source = position >= s ? *EntryAt(p.history, row, position - s) : p.padding;
    accumulated ^= source * p.numbers[s];
  }
  const int64_t* sizes = p.numbers + p.ngram;
  // Never negative, but for ids that nobody wrote: even these must name a row.
  const auto hash = static_cast<uint64_t>(accumulated);
  return static_cast<int64_t>(hash % static_cast<uint64_t>(sizes[index])) + sizes[count + index];
}

// Grid: [tokens, rows of a token].
template <typename X>
__global__ void GatherKernel(const __grid_constant__ GatherParams p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const auto t = static_cast<int32_t>(blockIdx.x), index = static_cast<int32_t>(blockIdx.y);
  const int64_t row = TableRow(p, t, index);
  const uint8_t* codes = p.table + row * p.width;
  const uint8_t* scales = p.scales + row * (p.width / kScaleColumns);
  X* out = reinterpret_cast<X*>(p.out) + (int64_t{t} * gridDim.y + index) * p.width;
  for (int i = threadIdx.x * kCodes; i < p.width; i += blockDim.x * kCodes) {
    const uint32_t four = *reinterpret_cast<const uint32_t*>(codes + i);
    const float scale = FloatOfE8M0(scales[i / kScaleColumns]);
#pragma unroll
    for (int c = 0; c < kCodes; ++c) {
      const auto code = static_cast<uint8_t>(four >> (8 * c));
      FromFloat(FloatOfE4M3(code) * scale, out + i + c);
    }
  }
}

// Grid: [tokens, streams].
__global__ void __launch_bounds__(kThreads)
    GateKernel(float* streams, const float* kv, const float* q_weight, const float* k_weight,
               int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  __shared__ float scratch[kThreads / 32];
  const int64_t t = blockIdx.x, j = blockIdx.y;
  float* h = streams + (t * kStreams + j) * width;
  const float* key = kv + (t * (kStreams + 1) + j) * width;
  const float* value = kv + (t * (kStreams + 1) + kStreams) * width;
  const float *q = q_weight + j * width, *k = k_weight + j * width;
  float products = 0.0f, h_squares = 0.0f, key_squares = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    products = fmaf(h[i] * q[i] * k[i], key[i], products);
    h_squares = fmaf(h[i], h[i], h_squares);
    key_squares = fmaf(key[i], key[i], key_squares);
  }
  const auto n = static_cast<float>(width);
  const float h_rms = sqrtf(BlockSum(h_squares, scratch) / n + kNormEps);
  const float key_rms = sqrtf(BlockSum(key_squares, scratch) / n + kNormEps);
  const float dot = BlockSum(products, scratch) / (h_rms * key_rms) / sqrtf(n);
  const float root = sqrtf(fmaxf(fabsf(dot), kLeastDot));
  const float gate = 1.0f / (1.0f + expf(dot < 0.0f ? root : -root));
  for (int64_t i = threadIdx.x; i < width; i += kThreads) h[i] = fmaf(gate, value[i], h[i]);
}

}  // namespace

void EngramRemember(Stream stream, const EngramHistory& history, const int32_t* token_ids,
                    const int32_t* token_map) {
  if (history.num_tokens == 0) return;
  LaunchDependent(stream, RememberKernel,
                  static_cast<unsigned>(CeilDiv(history.num_tokens, kThreads)), kThreads, 0,
                  history, token_ids, token_map);
  CUDA_CHECK_LAUNCH(stream, "engram_remember", history.num_tokens);
}

void EngramGather(Stream stream, const EngramGatherArgs& args) {
  const int64_t tokens = args.out.rows(), width = args.table.cols();
  if (tokens == 0) return;
  const int32_t rows = args.hash->rows_per_token();
  CHECK_EQ(width % kScaleColumns, 0);
  CHECK_EQ(args.out.cols(), rows * width);
  const GatherParams params = {.history = args.history,
                               .out = args.out.data,
                               .table = reinterpret_cast<const uint8_t*>(args.table.data),
                               .scales = reinterpret_cast<const uint8_t*>(args.scales.data),
                               .numbers = args.numbers,
                               .ngram = args.hash->ngram,
                               .heads = args.hash->heads,
                               .width = static_cast<int32_t>(width),
                               .padding = args.padding};
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(rows));
  const auto threads = static_cast<unsigned>(std::min<int64_t>(kThreads, width / kCodes));
  if (args.out.dtype == DType::kBF16) {
    LaunchDependent(stream, GatherKernel<__nv_bfloat16>, grid, threads, 0, params);
  } else {
    CHECK(args.out.dtype == DType::kF32) << Info(args.out.dtype).name;
    LaunchDependent(stream, GatherKernel<float>, grid, threads, 0, params);
  }
  CUDA_CHECK_LAUNCH(stream, "engram_gather", tokens, rows, width);
}

void EngramGate(Stream stream, const EngramGateArgs& args) {
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  if (tokens == 0) return;
  CHECK(args.kv.dtype == DType::kF32) << Info(args.kv.dtype).name;
  LaunchDependent(stream, GateKernel, dim3(static_cast<unsigned>(tokens), kStreams), kThreads, 0,
                  args.streams.as<float>(), args.kv.as<float>(), args.q_weight, args.k_weight,
                  width);
  CUDA_CHECK_LAUNCH(stream, "engram_gate", tokens, width);
}

}  // namespace hayate::ops::sm90
