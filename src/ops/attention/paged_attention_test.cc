#include "ops/attention/paged_attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/align.h"
#include "base/rng.h"
#include "ops/attention/kernels.h"
#include "ops/attention/kv_layout.h"

namespace hayate::ops::attention {
namespace {

struct Config {
  DType dtype = DType::kF16;
  int32_t page_tokens = 32;
  int32_t num_kv_heads = 2;
  int32_t num_heads = 6;
  int32_t head_dim = 64;
  int32_t group_size = 3;
  int32_t group_offset = 0;
  int32_t window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;

  std::string ToString() const {
    return std::string(Info(dtype).name) + " P " + std::to_string(page_tokens) + " D " +
           std::to_string(head_dim) + " heads " + std::to_string(num_heads) + "/" +
           std::to_string(num_kv_heads) + " offset " + std::to_string(group_offset) + " window " +
           std::to_string(window) + (sinks ? " sinks" : "") + (soft_cap > 0 ? " cap" : "");
  }
};

// Sequences over shuffled pages of one pool; everything that was never written is NaN.
class Sequences {
 public:
  Sequences(const Kernels& kernels, const Config& config, std::vector<int32_t> lengths,
            uint64_t seed)
      : kernels_(kernels), config_(config), lengths_(std::move(lengths)), rng_(seed) {
    int32_t pages = 0;
    for (const int32_t length : lengths_) {
      stride_ = std::max(stride_, CeilDiv(length, config.page_tokens));
      pages += CeilDiv(length, config.page_tokens);
    }
    page_bytes_ =
        KvLayerPageBytes(config.dtype, config.page_tokens, config.num_kv_heads, config.head_dim) +
        64;
    pool_.assign(static_cast<size_t>(page_bytes_ * (pages + 1)), std::byte{0xFF});
    std::vector<int32_t> free;
    for (int32_t page = 0; page < pages; ++page) free.push_back(page);
    for (const int32_t length : lengths_) {
      std::vector<int32_t> table(static_cast<size_t>(stride_), -1);
      for (int32_t i = 0; i < CeilDiv(length, config.page_tokens); ++i) {
        const size_t pick = rng_.Below(static_cast<uint32_t>(free.size()));
        table[static_cast<size_t>(i)] = free[pick];
        free.erase(free.begin() + static_cast<int64_t>(pick));
      }
      tables_.push_back(table);
      queries_.push_back(Normal(int64_t{length} * config.num_heads * config.head_dim));
      keys_.push_back(Normal(int64_t{length} * config.num_kv_heads * config.head_dim));
      values_.push_back(Normal(int64_t{length} * config.num_kv_heads * config.head_dim));
    }
    sinks_ = Normal(config.num_heads);
  }

  // A row of a step: tokens [begin, end) of a sequence.
  struct Row {
    size_t sequence;
    int32_t begin, end;
  };

  // Writes the rows' keys and values, then attends. Pages before every row's window are dropped.
  std::vector<float> Step(const std::vector<Row>& rows, Workspace& workspace,
                          bool reference = false) {
    std::vector<int32_t> q_begin = {0}, kv_len, positions, table;
    std::vector<float> q, k, v;
    for (const Row& row : rows) {
      Append(queries_[row.sequence], row, config_.num_heads, &q);
      Append(keys_[row.sequence], row, config_.num_kv_heads, &k);
      Append(values_[row.sequence], row, config_.num_kv_heads, &v);
      q_begin.push_back(q_begin.back() + row.end - row.begin);
      kv_len.push_back(row.end);
      for (int32_t p = row.begin; p < row.end; ++p) positions.push_back(p);
      for (size_t i = 0; i < static_cast<size_t>(stride_); ++i) {
        const int32_t last = static_cast<int32_t>(i + 1) * config_.page_tokens - 1;
        const bool dropped = config_.window > 0 && last <= row.begin - config_.window;
        table.push_back(dropped ? -1 : tables_[row.sequence][i]);
      }
    }
    const int64_t tokens = q_begin.back();
    std::vector<float> out(static_cast<size_t>(tokens * config_.num_heads * config_.head_dim + 8),
                           -7.0f);
    const AttentionRows attention_rows{static_cast<int32_t>(rows.size()), q_begin.data(),
                                       kv_len.data(), table.data(), stride_};
    const KvLayerView cache{pool_.data(),        page_bytes_,          config_.dtype,
                            config_.page_tokens, config_.num_kv_heads, config_.head_dim};
    const int64_t kv_stride = int64_t{config_.num_kv_heads} * config_.head_dim;
    const auto view = [&](std::vector<float>& data, int32_t heads) {
      return TensorView{reinterpret_cast<std::byte*>(data.data()),
                        DType::kF32,
                        {tokens, heads, config_.head_dim}};
    };
    if (!reference) {
      KvWriteWith(kernels_, {.k = view(k, config_.num_kv_heads),
                             .v = view(v, config_.num_kv_heads),
                             .k_row_stride = kv_stride,
                             .v_row_stride = kv_stride,
                             .positions = positions.data(),
                             .rows = attention_rows,
                             .cache = cache});
    }
    const PagedAttentionArgs args{.out = view(out, config_.num_heads),
                                  .q = view(q, config_.num_heads),
                                  .q_row_stride = int64_t{config_.num_heads} * config_.head_dim,
                                  .rows = attention_rows,
                                  .cache = cache,
                                  .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                                  .group_size = config_.group_size,
                                  .group_offset = config_.group_offset,
                                  .window = config_.window,
                                  .soft_cap = config_.soft_cap,
                                  .sinks = config_.sinks ? sinks_.data() : nullptr};
    if (reference) {
      PagedAttentionReference(args);
    } else {
      PagedAttentionWith(kernels_, workspace, args);
    }
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out[out.size() - 1 - static_cast<size_t>(i)], -7.0f);
    out.resize(out.size() - 8);
    return out;
  }

  std::vector<float>& values(size_t sequence) { return values_[sequence]; }
  size_t row_floats() const { return static_cast<size_t>(config_.num_heads * config_.head_dim); }

 private:
  std::vector<float> Normal(int64_t count) {
    std::vector<float> data(static_cast<size_t>(count));
    for (float& value : data) value = rng_.NextNormal() * 1.5f;
    return data;
  }
  void Append(const std::vector<float>& from, const Row& row, int32_t heads,
              std::vector<float>* to) const {
    const int64_t width = int64_t{heads} * config_.head_dim;
    to->insert(to->end(), from.begin() + row.begin * width, from.begin() + row.end * width);
  }

  const Kernels& kernels_;
  Config config_;
  std::vector<int32_t> lengths_;
  Rng rng_;
  int32_t stride_ = 0;
  int64_t page_bytes_ = 0;
  std::vector<std::byte> pool_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> queries_, keys_, values_;
  std::vector<float> sinks_;
};

std::vector<Config> Configs() {
  std::vector<Config> configs;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    configs.push_back({.dtype = dtype});
    configs.push_back({.dtype = dtype, .window = 37, .sinks = true});
    configs.push_back({.dtype = dtype, .page_tokens = 5, .window = 20, .soft_cap = 5.0f});
  }
  for (const int32_t d : {8, 24, 80, 96, 128, 256}) configs.push_back({.head_dim = d});
  for (const int32_t p : {1, 16, 48, 64, 128}) {
    configs.push_back({.page_tokens = p});
    configs.push_back({.page_tokens = p, .window = 33});
  }
  configs.push_back({.soft_cap = 20.0f, .sinks = true});
  configs.push_back({.num_kv_heads = 2, .num_heads = 5, .group_offset = 1});
  configs.push_back({.num_kv_heads = 2, .num_heads = 4, .group_offset = 2});
  configs.push_back({.num_kv_heads = 1, .num_heads = 40, .group_size = 40});
  configs.push_back({.num_kv_heads = 3, .num_heads = 3, .group_size = 1, .window = 1});
  return configs;
}

class PagedAttentionTest : public testing::TestWithParam<const Kernels*> {
 protected:
  Workspace WorkspaceFor(const Config& config) {
    const int64_t bytes = PagedAttentionWorkspaceBytes(1000, config.num_heads, config.head_dim);
    return Workspace(Buffer::Allocate(*device_, static_cast<size_t>(bytes)).value());
  }
  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
};

// Weights sum to 1 and values are below 8, so fp32 rounding over at most 300 keys and 256 features
// stays below 300 · 2⁻²³ · 8; scores of up to 30 with 2⁻²² relative error move weights by 30 ·
// 2⁻²².
constexpr double kTolerance = 4e-4;

TEST_P(PagedAttentionTest, MatchesTheDefinition) {
  for (const Config& config : Configs()) {
    Workspace workspace = WorkspaceFor(config);
    Sequences sequences(*GetParam(), config, {130, 1, 33, 64}, 1);
    sequences.Step({{0, 0, 100}, {3, 0, 31}}, workspace);
    const std::vector<Sequences::Row> rows = {{0, 100, 130}, {1, 0, 1}, {2, 0, 33}, {3, 31, 64}};
    const std::vector<float> out = sequences.Step(rows, workspace);
    const std::vector<float> expected = sequences.Step(rows, workspace, true);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected[i], kTolerance) << config.ToString() << " at " << i;
    }
    EXPECT_EQ(workspace.mark(), 0u);
  }
}

TEST_P(PagedAttentionTest, APositionDoesNotDependOnChunksOrNeighbours) {
  for (const Config& config : Configs()) {
    Workspace workspace = WorkspaceFor(config);
    constexpr int32_t kLength = 150;
    Sequences whole(*GetParam(), config, {kLength}, 2);
    const std::vector<float> expected = whole.Step({{0, 0, kLength}}, workspace);
    // The same tokens in random chunks, the neighbour in others.
    Sequences chunked(*GetParam(), config, {kLength}, 2);
    Rng rng(3);
    for (int32_t begin = 0; begin < kLength;) {
      const int32_t count =
          begin > 90 ? 1 : std::min(kLength - begin, 1 + static_cast<int32_t>(rng.Below(50)));
      const std::vector<float> out = chunked.Step({{0, begin, begin + count}}, workspace);
      const size_t offset = static_cast<size_t>(begin) * whole.row_floats();
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected[offset + i]))
            << config.ToString() << " chunk at " << begin << " element " << i;
      }
      begin += count;
    }
  }
}

TEST_P(PagedAttentionTest, RowsOfABatchAreEachTheirOwn) {
  const Config config{.window = 70};
  Workspace workspace = WorkspaceFor(config);
  Sequences together(*GetParam(), config, {90, 40, 200}, 4);
  Sequences alone(*GetParam(), config, {90, 40, 200}, 4);
  const std::vector<Sequences::Row> rows = {{0, 0, 90}, {1, 0, 40}, {2, 0, 200}};
  const std::vector<float> all = together.Step(rows, workspace);
  size_t at = 0;
  for (const Sequences::Row& row : rows) {
    for (const float value : alone.Step({row}, workspace)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(all[at]), std::bit_cast<uint32_t>(value)) << at;
      ++at;
    }
  }
}

TEST_P(PagedAttentionTest, AnEmptyStepDoesNothing) {
  const Config config;
  Workspace workspace = WorkspaceFor(config);
  Sequences sequences(*GetParam(), config, {10}, 5);
  EXPECT_TRUE(sequences.Step({}, workspace).empty());
  EXPECT_TRUE(sequences.Step({{0, 4, 4}}, workspace).empty());
}

TEST_P(PagedAttentionTest, ABadValuePoisonsOnlyWhoSeesIt) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    const Config config{.dtype = dtype};
    Workspace workspace = WorkspaceFor(config);
    Sequences sequences(*GetParam(), config, {64}, 6);
    sequences.values(0)[static_cast<size_t>(50 * config.num_kv_heads * config.head_dim)] = NAN;
    const std::vector<float> early = sequences.Step({{0, 0, 50}}, workspace);
    for (const float value : early) ASSERT_TRUE(std::isfinite(value));
    const std::vector<float> late = sequences.Step({{0, 50, 64}}, workspace);
    EXPECT_TRUE(std::isnan(late[0]));
  }
}

TEST_P(PagedAttentionTest, LargeScoresDoNotOverflow) {
  const Config config{.dtype = DType::kF32, .num_kv_heads = 1, .num_heads = 1, .group_size = 1};
  Workspace workspace = WorkspaceFor(config);
  std::vector<std::byte> pool(static_cast<size_t>(KvLayerPageBytes(DType::kF32, 32, 1, 64)));
  std::vector<float> data(40 * 64, 100.0f);
  for (size_t i = 0; i < 64; ++i) data[i] = -100.0f;  // token 0 points the other way
  const int32_t q_begin[] = {0, 32}, kv_len[] = {32}, table[] = {0};
  std::vector<int32_t> positions(32);
  for (size_t i = 0; i < 32; ++i) positions[i] = static_cast<int32_t>(i);
  const AttentionRows rows{1, q_begin, kv_len, table, 1};
  const KvLayerView cache{pool.data(), static_cast<int64_t>(pool.size()), DType::kF32, 32, 1, 64};
  const TensorView x{reinterpret_cast<std::byte*>(data.data()), DType::kF32, {32, 1, 64}};
  KvWriteWith(*GetParam(), {x, x, 64, 64, positions.data(), rows, cache});
  std::vector<float> out(32 * 64);
  PagedAttentionWith(*GetParam(), workspace,
                     {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {32, 1, 64}},
                      .q = x,
                      .q_row_stride = 64,
                      .rows = rows,
                      .cache = cache});
  EXPECT_FLOAT_EQ(out[0], -100.0f);
  for (size_t i = 64; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], 100.0f) << i;
}

TEST_P(PagedAttentionTest, StoredElementsRoundAsTheDefinition) {
  Rng rng(7);
  std::vector<float> x(40);
  for (float& value : x) value = rng.NextNormal() * 3.0f;
  x[3] = 1e-30f;
  x[4] = 7e4f;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const int64_t stride : {1, 32}) {
      std::vector<std::byte> out(40 * 32 * 4), expected(40 * 32 * 4);
      EXPECT_EQ(GetParam()->store(dtype, x.data(), 40, out.data(), stride),
                PlainKernels().store(dtype, x.data(), 40, expected.data(), stride));
      EXPECT_EQ(out, expected) << Info(dtype).name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PagedAttentionTest,
                         testing::ValuesIn(AvailableKernels(DetectCpuFeatures())),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace hayate::ops::attention
