#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/sparse_attention/head_rotation.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "ops/sparse_attention/testing/device_rows.h"

namespace hayate::ops {
namespace {

using testing::Epsilon;
using testing::PagedRows;
using testing::RandomFloats;
using testing::Rounded;
using testing::TestStep;
using testing::ViewOf;

using SparseAttentionGpuTest = testing::LatentGpuTest;
using LatentRowsGpuTest = testing::LatentGpuTest;
using HeadRotationGpuTest = testing::LatentGpuTest;

struct Format {
  RowFormat format;
  int32_t width, rotary;
};
constexpr Format kFormats[] = {{RowFormat::kF32, 36, 4},      {RowFormat::kBF16, 40, 8},
                               {RowFormat::kFp8, 192, 64},    {RowFormat::kFp8, 512, 64},
                               {RowFormat::kFp8All, 96, 32},  {RowFormat::kFp4All, 128, 64},
                               {RowFormat::kFp4Key, 128, 64}, {RowFormat::kFp8Row, 576, 64},
                               {RowFormat::kFp8Row, 144, 16}, {RowFormat::kFp8Key, 128, 64}};

TEST_F(LatentRowsGpuTest, StoredBytesEqualTheHosts) {
  const std::vector<int32_t> lengths = {5, 70}, counts = {5, 40};
  for (const Format& f : kFormats) {
    for (const bool hadamard : {false, true}) {
      if (hadamard && (f.width & (f.width - 1)) != 0) continue;
      Rng rng(1);
      PagedRows rows(f.format, 16, f.width, f.rotary, lengths, rng);
      const TestStep step(lengths, counts);
      std::vector<float> x = RandomFloats(step.tokens() * f.width, rng);
      x[3] = 1e4f;  // a block's scale is far from the others'
      x[static_cast<size_t>(f.width) + 1] = 0.0f;
      const std::vector<std::byte> before = rows.bytes();
      const auto device_bytes = ToDevice(before);
      LatentLayerView view = rows.view();
      view.base = device_bytes.data();
      const AttentionRows host_rows = rows.Rows(step.q_begin, step.kv_len);
      Workspace workspace(Buffer::Allocate(*device_, 1 << 20).value());
      AppendRows(stream_, workspace,
                 {.x = Placed(x, DType::kF32, {step.tokens(), f.width}),
                  .hadamard = hadamard,
                  .positions = Placed(step.positions),
                  .cache = view,
                  .rows = Placed(host_rows, step, rows.tables())});
      const std::vector<std::byte> got = ToHost(device_bytes);
      const auto cpu = MakeCpuDevice(0);
      Workspace cpu_workspace(Buffer::Allocate(*cpu, 1 << 20).value());
      AppendRows({}, cpu_workspace,
                 {.x = ViewOf(x, {step.tokens(), f.width}),
                  .hadamard = hadamard,
                  .positions = step.positions.data(),
                  .cache = rows.view(),
                  .rows = host_rows});
      ASSERT_NE(rows.bytes(), before);
      ASSERT_TRUE(got == rows.bytes())
          << "format " << static_cast<int>(f.format) << ", " << f.width << " features";
    }
  }
}

TEST_F(LatentRowsGpuTest, WritesNormedAndTurnedRowsWhereTheyAreTargeted) {
  constexpr int32_t kWidth = 128, kRotary = 64;
  const std::vector<int32_t> lengths = {20, 33};
  Rng rng(2);
  PagedRows rows(RowFormat::kF32, 4, kWidth, kRotary, lengths, rng);
  const TestStep step(lengths, {1, 1});
  const std::vector<int32_t> seq = {1, 0, 0, 1}, index = {32, 7, -1, 5};
  std::vector<float> x = RandomFloats(4 * kWidth, rng), norm = RandomFloats(kWidth, rng),
                     cos_sin = RandomFloats(4 * kRotary, rng);
  const auto device_bytes = ToDevice(rows.bytes());
  LatentLayerView view = rows.view();
  view.base = device_bytes.data();
  const auto device_x = ToDevice(x);
  const AttentionRows host_rows = rows.Rows(step.q_begin, step.kv_len);
  Workspace workspace(Buffer::Allocate(*device_, 1 << 20).value());
  LatentWrite(stream_, workspace,
              {.x = device_x.View(DType::kF32, {4, kWidth}),
               .norm = Placed(norm),
               .cos_sin = Placed(cos_sin),
               .hadamard = true,
               .cache = view,
               .rows = Placed(host_rows, step, rows.tables()),
               .targets = {4, Placed(seq), Placed(index)}});
  const std::vector<std::byte> got = ToHost(device_bytes);
  const std::vector<float> normed = ToHost(device_x);
  const auto cpu = MakeCpuDevice(0);
  Workspace cpu_workspace(Buffer::Allocate(*cpu, 1 << 20).value());
  for (const size_t i : {size_t{0}, size_t{1}, size_t{3}}) {
    std::vector<float> one(x.begin() + static_cast<long>(i) * kWidth,
                           x.begin() + static_cast<long>(i + 1) * kWidth);
    LatentWrite({}, cpu_workspace,
                {.x = ViewOf(one, {1, kWidth}),
                 .norm = norm.data(),
                 .cos_sin = cos_sin.data() + i * kRotary,
                 .hadamard = true,
                 .cache = rows.view(),
                 .rows = host_rows,
                 .targets = {1, &seq[i], &index[i]}});
    for (size_t c = 0; c < kWidth; ++c) ASSERT_NEAR(normed[i * kWidth + c], one[c], 1e-5f);
  }
  for (size_t at = 0; at < got.size(); at += 4) {
    float a, b;
    std::memcpy(&a, &got[at], 4);
    std::memcpy(&b, &rows.bytes()[at], 4);
    if (std::memcmp(&a, &b, 4) == 0) continue;  // what was not written is NaN in places
    ASSERT_NEAR(a, b, 2e-5f * (1 + std::abs(b))) << at;
  }
}

TEST_F(HeadRotationGpuTest, MatchesTheCpu) {
  struct Case {
    int32_t heads, width, rotary;
    float eps;
    bool hadamard, fp4;
  };
  for (const Case& c : {Case{3, 40, 8, 0, false, false}, Case{2, 64, 64, 1e-6f, false, false},
                        Case{5, 128, 64, 0, true, false}, Case{4, 128, 64, 0, true, true},
                        Case{1, 96, 32, 1e-6f, false, true}, Case{2, 64, 0, 0, true, false}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      constexpr int64_t kTokens = 7;
      Rng rng(3);
      const std::vector<float> x = Rounded(RandomFloats(kTokens * c.heads * c.width, rng), dtype);
      const std::vector<float> cos_sin = RandomFloats(kTokens * std::max(c.rotary, 1), rng);
      for (const Rotation direction : {Rotation::kForward, Rotation::kInverse}) {
        const Shape shape{kTokens, c.heads, c.width};
        HeadRotationArgs args = {.rotary = c.rotary,
                                 .direction = direction,
                                 .rms_eps = c.eps,
                                 .hadamard = c.hadamard,
                                 .simulate_fp4 = c.fp4};
        std::vector<float> want = x;
        args.x = ViewOf(want, shape);
        args.cos_sin = cos_sin.data();
        RotateHeads({}, args);
        const auto device_x = ToDevice(x, dtype);
        args.x = device_x.View(dtype, shape);
        args.cos_sin = Placed(cos_sin);
        RotateHeads(stream_, args);
        const std::vector<float> got = FloatsToHost(device_x, dtype);
        size_t far = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          const float error = std::abs(got[i] - want[i]);
          if (error > 4 * Epsilon(dtype) * (1 + std::abs(want[i])) + 2e-6) ++far;
        }
        // Where a value lies between two codes, rounding may choose the other one.
        EXPECT_LE(far, c.fp4 ? got.size() / 100 : 0) << c.heads << " x " << c.width;
      }
    }
  }
}

struct Case {
  int32_t heads, width, value_width, rotary, window, ratio, top_k;
  RowFormat window_format = RowFormat::kF32, entry_format = RowFormat::kF32;
  bool sinks = false;
};

class Attention {
 public:
  Attention(const Case& shape, const std::vector<int32_t>& lengths,
            const std::vector<int32_t>& counts)
      : step(lengths, counts), c(shape) {
    Rng rng(4);
    std::vector<int32_t> entries;
    for (const int32_t length : lengths) entries.push_back(c.ratio == 0 ? 0 : length / c.ratio);
    window = std::make_unique<PagedRows>(c.window_format, 16, c.width, c.rotary, lengths, rng);
    cache = std::make_unique<PagedRows>(c.entry_format, 8, c.width, c.rotary, entries, rng);
    q = RandomFloats(step.tokens() * c.heads * c.width, rng);
    sinks = RandomFloats(c.heads, rng);
    selected.assign(static_cast<size_t>(step.tokens() * std::max(c.top_k, 1)), 0);
    for (int64_t t = 0; t < step.tokens() && c.top_k > 0; ++t) {
      const int32_t visible = (step.positions[static_cast<size_t>(t)] + 1) / c.ratio;
      int32_t count = 0;
      for (int32_t e = t % 2 == 0 ? 0 : 1; e < visible && count < c.top_k; e += 3) {
        selected[static_cast<size_t>(t * c.top_k + count++)] = e;
      }
      selected_count.push_back(count);
    }
  }

  TestStep step;
  Case c;
  std::unique_ptr<PagedRows> window, cache;
  std::vector<float> q, sinks;
  std::vector<int32_t> selected, selected_count;
};

// The first columns of the result of rows that are values as a whole.
std::vector<float> ReferenceOf(Attention& a, const std::vector<float>& q) {
  std::vector<float> queries = q, whole(q.size()), out;
  SparseAttentionReference({.out = ViewOf(whole, {a.step.tokens(), a.c.heads, a.c.width}),
                            .q = ViewOf(queries, {a.step.tokens(), a.c.heads, a.c.width}),
                            .positions = a.step.positions.data(),
                            .window_cache = a.window->view(),
                            .window_rows = a.window->Rows(a.step.q_begin, a.step.kv_len),
                            .window = a.c.window,
                            .entry_cache = a.cache->view(),
                            .entry_rows = a.cache->Rows(a.step.q_begin, a.step.kv_len),
                            .ratio = a.c.ratio,
                            .selected = a.c.top_k > 0 ? a.selected.data() : nullptr,
                            .selected_count = a.selected_count.data(),
                            .selected_stride = a.c.top_k,
                            .scale = 0.2f,
                            .sinks = a.c.sinks ? a.sinks.data() : nullptr});
  for (int64_t row = 0; row < a.step.tokens() * a.c.heads; ++row) {
    const auto begin = whole.begin() + row * a.c.width;
    out.insert(out.end(), begin, begin + a.c.value_width);
  }
  return out;
}

TEST_F(SparseAttentionGpuTest, MatchesTheDefinition) {
  using enum RowFormat;
  const Case cases[] = {
      {3, 40, 40, 8, 9, 0, 0},                            // a window alone
      {5, 36, 32, 4, 0, 1, 0},                            // latent rows, odd
      {2, 64, 64, 16, 8, 4, 5, kF32, kF32, true},         // V4 in small
      {16, 192, 128, 64, 0, 1, 0, kF32, kBF16},           // V3 in small, tiled
      {20, 192, 128, 64, 0, 1, 40, kF32, kBF16},          // with a choice, heads that fill no tile
      {8, 576, 512, 64, 0, 1, 0, kF32, kFp8Row},          // V3's packed rows
      {64, 512, 512, 64, 32, 4, 70, kFp8, kFp8, true},    // V4
      {32, 256, 256, 64, 48, 8, 0, kFp8, kFp8All, true},  // all entries
      {16, 128, 128, 64, 16, 2, 0, kBF16, kFp4All, false},  // two formats
      {128, 576, 512, 64, 0, 1, 0, kF32, kBF16},            // V3
  };
  for (const Case& c : cases) {
    Attention a(c, {1, 66, 700}, {1, 5, 3});
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<float> q = Rounded(a.q, dtype);
      const std::vector<float> want = ReferenceOf(a, q);
      Workspace workspace(Buffer::Allocate(*device_, size_t{64} << 20).value());
      const auto out = Poisoned(want.size(), dtype);
      const bool entries = c.ratio > 0, window = c.window > 0;
      SparseAttentionArgs args = {
          .out = out.View(dtype, {a.step.tokens(), c.heads, c.value_width}),
          .q = Placed(q, dtype, {a.step.tokens(), c.heads, c.width}),
          .positions = Placed(a.step.positions),
          .window = c.window,
          .ratio = c.ratio,
          .selected = c.top_k > 0 ? Placed(a.selected) : nullptr,
          .selected_count = c.top_k > 0 ? Placed(a.selected_count) : nullptr,
          .selected_stride = c.top_k,
          .scale = 0.2f,
          .sinks = c.sinks ? Placed(a.sinks) : nullptr};
      if (window) {
        args.window_cache = Placed(*a.window);
        args.window_rows =
            Placed(a.window->Rows(a.step.q_begin, a.step.kv_len), a.step, a.window->tables());
      }
      if (entries) {
        args.entry_cache = Placed(*a.cache);
        args.entry_rows =
            Placed(a.cache->Rows(a.step.q_begin, a.step.kv_len), a.step, a.cache->tables());
      }
      SparseAttention(stream_, workspace, args);
      const std::vector<float> got = FloatsToHost(out, dtype);
      // Values are of order 1; weights are rounded to bf16 once, results too, and scores of order 5
      // come from products of rounded numbers.
      const double tolerance = dtype == DType::kF32 ? 5e-5 : 3 * Epsilon(dtype);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i])))
            << c.heads << " heads of " << c.width << ", " << Info(dtype).name << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hayate::ops
