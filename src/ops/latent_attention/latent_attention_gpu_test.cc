#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "ops/latent_attention/latent_attention.h"
#include "ops/sparse_attention/testing/device_rows.h"

namespace hayate::ops {
namespace {

using testing::Epsilon;
using testing::PagedRows;
using testing::RandomFloats;
using testing::Rounded;
using testing::TestStep;
using testing::ViewOf;

struct Dims {
  int32_t heads, latent, nope, rope, value;
};

class LatentAttentionGpuTest : public testing::LatentGpuTest {
 protected:
  PackedMatrix Pack(const std::vector<float>& values, int64_t n, int64_t k, DType dtype) {
    std::vector<uint16_t> rounded;
    for (const float value : values) rounded.push_back(FloatToBf16(value));
    ConstTensorView view{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {n, k}};
    if (dtype == DType::kBF16) {
      view = {reinterpret_cast<const std::byte*>(rounded.data()), DType::kBF16, {n, k}};
    }
    const MatrixPiece piece = MatrixPiece::Whole(view);
    const auto precision = dtype == DType::kF32 ? MatmulPrecision::kExact : MatmulPrecision::kFast;
    PackedMatrix packed = PackMatrix(*device_, {&piece, 1}, precision).value();
    device_->FinishLoading();
    return packed;
  }

  // uk [Hq, Dn, L], uv [Hq, Dv, L].
  LatentProjections Project(const Dims& d, const std::vector<float>& uk,
                            const std::vector<float>& uv, DType dtype) {
    LatentProjections p = {.num_heads = d.heads,
                           .latent_dim = d.latent,
                           .nope_dim = d.nope,
                           .rope_dim = d.rope,
                           .value_dim = d.value};
    const int64_t l = d.latent, dn = d.nope, dv = d.value;
    for (int64_t h = 0; h < d.heads; ++h) {
      std::vector<float> turned(static_cast<size_t>(l * dn));
      for (int64_t i = 0; i < l * dn; ++i) {
        turned[static_cast<size_t>(i)] = uk[static_cast<size_t>((h * dn + i % dn) * l + i / dn)];
      }
      p.absorb.push_back(Pack(turned, l, dn, dtype));
      p.value.push_back(
          Pack({uv.begin() + h * dv * l, uv.begin() + (h + 1) * dv * l}, dv, l, dtype));
    }
    const Status placed = PlaceProjections(*device_, p);
    EXPECT_TRUE(placed.ok()) << placed.message();
    device_->FinishLoading();
    return p;
  }

  void Compare(const Dims& d, RowFormat format, DType dtype, int32_t top_k) {
    Rng rng(1);
    const std::vector<int32_t> lengths = {1, 40, 300}, counts = {1, 40, 2};
    PagedRows rows(format, 16, d.latent + d.rope, d.rope, lengths, rng);
    const TestStep step(lengths, counts);
    const int64_t tokens = step.tokens(), q_width = d.nope + d.rope;
    const auto matrix = [&](int64_t n, int64_t k) {
      std::vector<float> values = RandomFloats(n * k, rng);
      for (float& value : values) value /= std::sqrt(static_cast<float>(k));
      return Rounded(values, dtype);
    };
    const std::vector<float> uk = matrix(d.heads * d.nope, d.latent),
                             uv = matrix(d.heads * d.value, d.latent);
    std::vector<float> q = Rounded(RandomFloats(tokens * d.heads * q_width, rng), dtype);
    std::vector<int32_t> selected(static_cast<size_t>(tokens * top_k)), count;
    for (int64_t t = 0; t < tokens && top_k > 0; ++t) {
      count.push_back(std::min(top_k, step.positions[static_cast<size_t>(t)] + 1));
      std::iota(selected.begin() + t * top_k, selected.begin() + t * top_k + count.back(), 0);
    }
    const LatentProjections projections = Project(d, uk, uv, dtype);
    std::vector<float> want(static_cast<size_t>(tokens * d.heads * d.value));
    LatentAttentionArgs args = {.out = ViewOf(want, {tokens, d.heads, d.value}),
                                .q = ViewOf(q, {tokens, d.heads, q_width}),
                                .positions = step.positions.data(),
                                .cache = rows.view(),
                                .rows = rows.Rows(step.q_begin, step.kv_len),
                                .scale = 0.2f,
                                .projections = &projections,
                                .selected = top_k > 0 ? selected.data() : nullptr,
                                .selected_count = count.data(),
                                .selected_stride = top_k};
    LatentAttentionReference(args, uk, uv);
    const auto out = Poisoned(want.size(), dtype);
    args.out = out.View(dtype, {tokens, d.heads, d.value});
    args.q = Placed(q, dtype, {tokens, d.heads, q_width});
    args.positions = Placed(step.positions);
    args.cache = Placed(rows);
    args.rows = Placed(args.rows, step, rows.tables());
    if (top_k > 0) {
      args.selected = Placed(selected);
      args.selected_count = Placed(count);
    }
    const int64_t bytes = LatentAttentionWorkspaceBytes(projections, tokens);
    Workspace workspace(Buffer::Allocate(*device_, static_cast<size_t>(bytes)).value());
    LatentAttention(stream_, workspace, args);
    EXPECT_EQ(workspace.mark(), 0u);
    const std::vector<float> got = FloatsToHost(out, dtype);
    // Absorbed queries, sums and results are rounded once each.
    const double tolerance = dtype == DType::kF32 ? 5e-5 : 6 * Epsilon(dtype);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i])))
          << d.heads << " heads, " << Info(dtype).name << ", element " << i;
    }
  }
};

TEST_F(LatentAttentionGpuTest, MatchesTheDefinition) {
  Compare({3, 32, 16, 8, 24}, RowFormat::kF32, DType::kF32, 0);
  Compare({2, 40, 12, 4, 20}, RowFormat::kF32, DType::kF32, 7);
  Compare({2, 40, 12, 4, 20}, RowFormat::kBF16, DType::kBF16, 0);
  Compare({16, 128, 32, 64, 64}, RowFormat::kBF16, DType::kBF16, 0);
  Compare({16, 128, 32, 64, 64}, RowFormat::kFp8Row, DType::kBF16, 33);
  Compare({128, 512, 128, 64, 128}, RowFormat::kBF16, DType::kBF16, 0);
}

TEST_F(LatentAttentionGpuTest, AppendsNormedAndTurnedRows) {
  constexpr int32_t kLatent = 96, kRope = 32, kWidth = kLatent + kRope;
  const std::vector<int32_t> lengths = {20, 33}, counts = {3, 33};
  Rng rng(2);
  PagedRows rows(RowFormat::kF32, 4, kWidth, kRope, lengths, rng);
  const TestStep step(lengths, counts);
  std::vector<float> x = RandomFloats(step.tokens() * kWidth, rng),
                     norm = RandomFloats(kLatent, rng),
                     cos_sin = RandomFloats(step.tokens() * kRope, rng);
  const auto device_bytes = ToDevice(rows.bytes());
  LatentLayerView view = rows.view();
  view.base = device_bytes.data();
  const AttentionRows host_rows = rows.Rows(step.q_begin, step.kv_len);
  Workspace workspace(Buffer::Allocate(*device_, 1 << 20).value());
  LatentAppend(stream_, workspace,
               {.x = Placed(x, DType::kF32, {step.tokens(), kWidth}),
                .norm = Placed(norm),
                .cos_sin = Placed(cos_sin),
                .positions = Placed(step.positions),
                .cache = view,
                .rows = Placed(host_rows, step, rows.tables())});
  const std::vector<std::byte> got = ToHost(device_bytes);
  const auto cpu = MakeCpuDevice(0);
  Workspace cpu_workspace(Buffer::Allocate(*cpu, 1 << 20).value());
  LatentAppend({}, cpu_workspace,
               {.x = ViewOf(x, {step.tokens(), kWidth}),
                .norm = norm.data(),
                .cos_sin = cos_sin.data(),
                .positions = step.positions.data(),
                .cache = rows.view(),
                .rows = host_rows});
  for (size_t at = 0; at < got.size(); at += 4) {
    float a, b;
    std::memcpy(&a, &got[at], 4);
    std::memcpy(&b, &rows.bytes()[at], 4);
    if (std::memcmp(&a, &b, 4) == 0) continue;  // what was not written is NaN in places
    ASSERT_NEAR(a, b, 2e-5f * (1 + std::abs(b))) << at;
  }
}

}  // namespace
}  // namespace hayate::ops
