// Decode and prefill attention of SmolLM2-135M (9 query and 3 kv heads of 64, one rank) and of an
// 8B model's head size. `kv_GB/s` counts keys and values read once per kv head.

#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/align.h"
#include "base/rng.h"
#include "ops/attention/kernels.h"

namespace hayate::ops::attention {
namespace {

struct Case {
  const char* name;
  int32_t num_heads, num_kv_heads, head_dim;
};

struct Shape {
  int32_t tokens;   // of the row
  int32_t context;  // with the row's own tokens
};

// Layers of the pool: decode reads another one each time, as a model does.
constexpr int64_t kRotatedBytes = int64_t{128} << 20;

void RunCase(benchmark::State& state, const Kernels& kernels, const Case& c, DType dtype,
             const Shape& shape) {
  constexpr int32_t kPageTokens = 32;
  const auto device = MakeCpuDevice(0);
  Workspace workspace(Buffer::Allocate(*device, static_cast<size_t>(PagedAttentionWorkspaceBytes(
                                                    shape.tokens, c.num_heads, c.head_dim)))
                          .value());
  const int64_t page_bytes = KvLayerPageBytes(dtype, kPageTokens, c.num_kv_heads, c.head_dim);
  const int32_t pages = CeilDiv(shape.context, kPageTokens);
  const int64_t layers = std::max<int64_t>(1, kRotatedBytes / (page_bytes * pages));
  std::vector<std::byte> pool(static_cast<size_t>(page_bytes * pages * layers));
  std::vector<int32_t> table(static_cast<size_t>(pages)), positions;
  for (int32_t i = 0; i < pages; ++i) table[static_cast<size_t>(i)] = (i * 7 + 3) % pages;
  for (int32_t i = 0; i < shape.context; ++i) positions.push_back(i);
  Rng rng(1);
  std::vector<float> x(static_cast<size_t>(shape.context * c.num_heads * c.head_dim));
  for (float& value : x) value = rng.NextNormal();
  std::vector<float> out(x.size());

  const int32_t all[] = {0, shape.context}, own[] = {0, shape.tokens}, length[] = {shape.context};
  AttentionRows rows{1, all, length, table.data(), pages};
  KvLayerView cache{pool.data(), page_bytes, dtype, kPageTokens, c.num_kv_heads, c.head_dim};
  const auto view = [&](std::vector<float>& data, int32_t tokens, int32_t heads) {
    return TensorView{
        reinterpret_cast<std::byte*>(data.data()), DType::kF32, {tokens, heads, c.head_dim}};
  };
  const int64_t kv_width = int64_t{c.num_kv_heads} * c.head_dim;
  for (int64_t layer = 0; layer < layers; ++layer) {
    cache.base = pool.data() + layer * page_bytes * pages;
    KvWriteWith(kernels, {.k = view(x, shape.context, c.num_kv_heads),
                          .v = view(x, shape.context, c.num_kv_heads),
                          .k_row_stride = kv_width,
                          .v_row_stride = kv_width,
                          .positions = positions.data(),
                          .rows = rows,
                          .cache = cache});
  }
  rows.q_begin = own;
  int64_t layer = 0;
  for (auto _ : state) {
    cache.base = pool.data() + layer * page_bytes * pages;
    layer = (layer + 1) % layers;
    PagedAttentionWith(kernels, workspace,
                       {.out = view(out, shape.tokens, c.num_heads),
                        .q = view(x, shape.tokens, c.num_heads),
                        .q_row_stride = int64_t{c.num_heads} * c.head_dim,
                        .rows = rows,
                        .cache = cache,
                        .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                        .group_size = c.num_heads / c.num_kv_heads});
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double runs = static_cast<double>(state.iterations());
  // Pairs of a query and a key that it sees.
  const double pairs = shape.tokens * (shape.context - (shape.tokens - 1) / 2.0) * c.num_heads;
  state.counters["kv_GB/s"] =
      Counter(runs * 1e-9 * static_cast<double>(page_bytes) * pages, Counter::kIsRate);
  state.counters["GFLOP/s"] = Counter(runs * 4e-9 * pairs * c.head_dim, Counter::kIsRate);
}

void RegisterAll() {
  const Case cases[] = {{"smollm2", 9, 3, 64}, {"8b", 32, 8, 128}};
  const Shape shapes[] = {{1, 512}, {1, 4096}, {8, 512}, {512, 512}};
  for (const Kernels* kernels : AvailableKernels(DetectCpuFeatures())) {
    for (const Case& c : cases) {
      for (const DType dtype : {DType::kF16, DType::kBF16, DType::kI8}) {
        for (const Shape& shape : shapes) {
          const std::string name =
              std::string(kernels->name) + "/" + c.name + "/" + std::string(Info(dtype).name) +
              "/" + std::to_string(shape.tokens) + "of" + std::to_string(shape.context);
          benchmark::RegisterBenchmark(name.c_str(),
                                       [kernels, c, dtype, shape](benchmark::State& state) {
                                         RunCase(state, *kernels, c, dtype, shape);
                                       });
        }
      }
    }
  }
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace hayate::ops::attention
