// Planned attention on one GPU. Each iteration replays a graph of launches over several pools of
// random numbers, more than the second-level cache holds; the time is the device's, a launch.
//
//   decode/B/KV/heads/kv_heads/fp8      one token for each of B rows of KV positions
//   prefill/B/T/prefix/heads/kv_heads/fp8
//
// `floor_us` is what the launch must take: its keys and values at 4.3 TB/s (a copy's rate on an
// H200) or its visible pairs at 740 TFLOP/s (FlashAttention-3's best).

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "base/rng.h"
#include "ops/attention/attention_plan.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

constexpr double kCopyRate = 4.3e12, kProductRate = 740e12;
constexpr int32_t kHeadDim = 128;
constexpr int64_t kRotatedBytes = int64_t{200} << 20;

struct Case {
  int32_t rows, tokens, prefix;  // of every row
  int32_t num_heads, num_kv_heads;
  DType cache;

  int32_t length() const { return prefix + tokens; }
  int64_t kv_bytes() const {
    return int64_t{rows} * length() * num_kv_heads * 2 * kHeadDim * Info(cache).block_bytes;
  }
  double flops() const {
    const double pairs = double{1} * tokens * prefix + 0.5 * tokens * (tokens + 1.0);
    return 4.0 * kHeadDim * num_heads * rows * pairs;
  }
};

Device& TheDevice() {
  static const std::unique_ptr<Device> device = MakeCudaDevice({}).value();
  return *device;
}

Buffer Random(size_t bytes, DType dtype, Rng& rng) {
  // A chunk of fresh numbers, repeated: what is timed does not look at values.
  std::vector<std::byte> chunk(std::min<size_t>(bytes, size_t{1} << 24));
  auto* words = reinterpret_cast<uint16_t*>(chunk.data());
  for (size_t i = 0; i < chunk.size() / 2; ++i) {
    words[i] = dtype == DType::kBF16 ? FloatToBf16(rng.NextNormal())
                                     : static_cast<uint16_t>(FloatToF8E4M3(rng.NextNormal()) << 8 |
                                                             FloatToF8E4M3(rng.NextNormal()));
  }
  Buffer buffer = Buffer::Allocate(TheDevice(), bytes).value();
  for (size_t at = 0; at < bytes; at += chunk.size()) {
    TheDevice().Upload(buffer.data() + at, chunk.data(), std::min(chunk.size(), bytes - at));
  }
  return buffer;
}

Buffer Placed(const std::vector<int32_t>& values) {
  Buffer buffer = Buffer::Allocate(TheDevice(), values.size() * sizeof(int32_t)).value();
  TheDevice().Upload(buffer.data(), values.data(), buffer.size());
  return buffer;
}

// One step's operands; the pools take turns.
class Step {
 public:
  explicit Step(const Case& c) : case_(c) {
    Rng rng(1);
    std::vector<int32_t> q_begin = {0}, kv_len, table;
    const int32_t pages = CeilDiv(c.length(), kPlanPage), total = pages * c.rows;
    for (int32_t r = 0; r < c.rows; ++r) {
      q_begin.push_back(q_begin.back() + c.tokens);
      kv_len.push_back(c.length());
    }
    for (int32_t page = 0; page < total; ++page) table.push_back(page);
    for (size_t i = table.size(); i > 1; --i) {
      std::swap(table[i - 1], table[rng.Below(static_cast<uint32_t>(i))]);
    }
    page_bytes_ = KvLayerPageBytes(c.cache, kPlanPage, c.num_kv_heads, kHeadDim);
    const int64_t pool_bytes = page_bytes_ * total;
    num_pools_ = static_cast<int32_t>(std::clamp<int64_t>(kRotatedBytes / pool_bytes + 1, 1, 40));
    for (int32_t i = 0; i < num_pools_; ++i) {
      pools_.push_back(Random(static_cast<size_t>(pool_bytes), c.cache, rng));
    }
    const size_t q_bytes = static_cast<size_t>(num_tokens() * c.num_heads * kHeadDim * 2);
    q_ = Random(q_bytes, DType::kBF16, rng);
    out_ = Buffer::Allocate(TheDevice(), q_bytes).value();
    q_begin_ = Placed(q_begin);
    kv_len_ = Placed(kv_len);
    table_ = Placed(table);
    Plan(q_begin, kv_len, pages);
    TheDevice().FinishLoading();
  }

  int32_t num_pools() const { return num_pools_; }
  void Launch(Stream stream, Workspace& workspace, int32_t pool) {
    const Shape shape{num_tokens(), case_.num_heads, kHeadDim};
    PagedAttention(stream, workspace,
                   {.out = {out_.data(), DType::kBF16, shape},
                    .q = TensorView{q_.data(), DType::kBF16, shape},
                    .q_row_stride = int64_t{case_.num_heads} * kHeadDim,
                    .rows = rows_,
                    .cache = {pools_[static_cast<size_t>(pool)].data(), page_bytes_, case_.cache,
                              kPlanPage, case_.num_kv_heads, kHeadDim},
                    .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
                    .group_size = case_.num_heads / case_.num_kv_heads});
  }

 private:
  int64_t num_tokens() const { return int64_t{case_.rows} * case_.tokens; }

  void Plan(const std::vector<int32_t>& q_begin, const std::vector<int32_t>& kv_len,
            int32_t pages) {
    const AttentionPlanShape shape{.num_q_heads = case_.num_heads,
                                   .num_kv_heads = case_.num_kv_heads,
                                   .group_size = case_.num_heads / case_.num_kv_heads,
                                   .head_dim = kHeadDim,
                                   .page_tokens = kPlanPage,
                                   .cache = case_.cache,
                                   .max_rows = case_.rows,
                                   .max_tokens = static_cast<int32_t>(num_tokens())};
    std::vector<std::byte> host(
        static_cast<size_t>(PlanStagedBytes(shape, shape.max_rows, shape.max_tokens)));
    const std::vector<std::byte> zeros(static_cast<size_t>(PlanScratchBytes(shape)), std::byte{0});
    staged_ = Buffer::Allocate(TheDevice(), host.size()).value();
    scratch_ = Buffer::Allocate(TheDevice(), zeros.size()).value();
    rows_ = {.num_rows = case_.rows,
             .q_begin = reinterpret_cast<const int32_t*>(q_begin_.data()),
             .kv_len = reinterpret_cast<const int32_t*>(kv_len_.data()),
             .page_table = reinterpret_cast<const int32_t*>(table_.data()),
             .page_table_stride = pages,
             .plan = PlanAttention(shape, {q_begin, kv_len, {}}, host.data(), staged_.data(),
                                   scratch_.data())};
    TheDevice().Upload(staged_.data(), host.data(), host.size());
    TheDevice().Upload(scratch_.data(), zeros.data(), zeros.size());
  }

  const Case case_;
  int64_t page_bytes_ = 0;
  int32_t num_pools_ = 0;
  std::vector<Buffer> pools_;
  Buffer q_, out_, q_begin_, kv_len_, table_, staged_, scratch_;
  AttentionRows rows_;
};

void Run(benchmark::State& state, const Case& c) {
  constexpr int32_t kMinLaunches = 8;
  Device& device = TheDevice();
  const Stream stream = device.load_stream();
  Workspace workspace{Buffer()};
  Step step(c);
  const int32_t launches = AlignUp(kMinLaunches, step.num_pools());
  device.BeginCapture(stream);
  for (int32_t i = 0; i < launches; ++i) step.Launch(stream, workspace, i % step.num_pools());
  const Graph graph = device.EndCapture(stream);
  device.Launch(graph, stream);
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  double total = 0.0;
  for (auto _ : state) {
    cudaEventRecord(begin, handle);
    device.Launch(graph, stream);
    cudaEventRecord(end, handle);
    cudaEventSynchronize(end);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, begin, end);
    state.SetIterationTime(static_cast<double>(ms) * 1e-3 / launches);
    total += static_cast<double>(ms) * 1e-3 / launches;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  CHECK(device.status().ok()) << device.status().message();
  const double seconds = total / static_cast<double>(state.iterations());
  const double floor =
      std::max(static_cast<double>(c.kv_bytes()) / kCopyRate, c.flops() / kProductRate);
  state.counters["kv_TB/s"] = static_cast<double>(c.kv_bytes()) / seconds * 1e-12;
  state.counters["TFLOP/s"] = c.flops() / seconds * 1e-12;
  state.counters["floor_us"] = floor * 1e6;
  state.counters["of_floor"] = floor / seconds;
}

void Register(const Case& c) {
  const bool decode = c.tokens == 1;
  const std::string of = std::to_string(c.num_heads) + "/" + std::to_string(c.num_kv_heads) +
                         (c.cache == DType::kF8E4M3 ? "/fp8" : "/bf16");
  const std::string name =
      decode ? "decode/" + std::to_string(c.rows) + "/" + std::to_string(c.length()) + "/" + of
             : "prefill/" + std::to_string(c.rows) + "/" + std::to_string(c.tokens) + "/" +
                   std::to_string(c.prefix) + "/" + of;
  benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { Run(state, c); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

// Without a GPU there is nothing to register.
[[maybe_unused]] const bool kRegistered = [] {
  if (CountCudaDevices() == 0) return false;
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    for (const auto& [rows, length] : std::vector<std::pair<int32_t, int32_t>>{
             {1, 1024}, {1, 8192}, {1, 131072}, {32, 4096}, {64, 1024}, {64, 8192}, {256, 1024}}) {
      Register({rows, 1, length - 1, 32, 8, cache});
    }
    Register({32, 1, 4095, 32, 4, cache});
    for (const int32_t tokens : {1024, 4096, 8192, 32768}) {
      Register({1, tokens, 0, 32, 8, cache});
    }
    Register({1, 2048, 6144, 32, 8, cache});
  }
  return true;
}();

}  // namespace
}  // namespace hayate::ops
