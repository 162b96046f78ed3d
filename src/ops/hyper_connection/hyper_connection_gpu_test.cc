#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/hyper_connection/hyper_connection.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using testing::Epsilon;
using testing::RandomNormals;
using testing::Rounded;
using Floats = std::vector<float>;

constexpr int64_t S = kHyperStreams;

TensorView View(Floats& values, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape};
}

class HyperConnectionGpuTest : public testing::GpuTest {
 protected:
  PackedMatrix Pack(const Floats& fn, int64_t outputs, int64_t width) {
    const auto* data = reinterpret_cast<const std::byte*>(fn.data());
    const MatrixPiece piece = MatrixPiece::Whole({data, DType::kF32, {outputs, width}});
    PackedMatrix packed = PackMatrix(*device_, {&piece, 1}, MatmulPrecision::kExact).value();
    device_->FinishLoading();
    return packed;
  }
  static Floats Fn(int64_t outputs, int64_t width) {
    Floats fn = RandomNormals(static_cast<size_t>(outputs * width), 1);
    for (float& value : fn) value /= std::sqrt(static_cast<float>(width));
    return fn;
  }
  static void ExpectNear(const Floats& got, const Floats& want, double tolerance,
                         const char* what) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << ' ' << i;
    }
  }
};

TEST_F(HyperConnectionGpuTest, EntersAndLeavesAsTheDefinitionsDo) {
  for (const int64_t h : {8, 100, 1024, 7168}) {
    const Floats fn = Fn(kHyperMixes, S * h);
    const PackedMatrix packed = Pack(fn, kHyperMixes, S * h);
    const Floats base = RandomNormals(kHyperMixes, 2), scale = {0.7f, 1.3f, 0.4f};
    const Floats norm = RandomNormals(static_cast<size_t>(h), 3);
    const auto device_base = ToDevice(base), device_scale = ToDevice(scale),
               device_norm = ToDevice(norm);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t tokens : {1, 3, 9}) {
        const auto size = static_cast<size_t>(tokens * h);
        Floats streams = RandomNormals(S * size, 4), out(size),
               coefficients(static_cast<size_t>(tokens) * kHyperMixes);
        const Floats y = Rounded(RandomNormals(size, 5), dtype);
        const Shape whole{tokens, S, h}, rows{tokens, h}, mixes{tokens, kHyperMixes};
        const auto device_streams = ToDevice(streams);
        const auto device_out = Poisoned(size, dtype);
        const auto device_mixes = Poisoned<float>(coefficients.size());
        const auto device_y = ToDevice(y, dtype);
        Workspace workspace(
            Buffer::Allocate(*device_, static_cast<size_t>(HyperWorkspaceBytes(tokens, h)))
                .value());
        const HyperConnection weights = {
            .fn = &packed, .base = device_base.data(), .scale = device_scale.data(), .eps = 1e-3f};
        HyperEnter(stream_, workspace,
                   {.out = device_out.View(dtype, rows),
                    .coefficients = device_mixes.View(DType::kF32, mixes),
                    .streams = device_streams.View(DType::kF32, whole),
                    .weights = weights,
                    .norm = device_norm.data()});
        HyperConnection host = weights;
        host.base = base.data();
        host.scale = scale.data();
        HyperEnterReference({.out = View(out, rows),
                             .coefficients = View(coefficients, mixes),
                             .streams = View(streams, whole),
                             .weights = host,
                             .norm = norm.data()},
                            fn.data());
        // Sums of 4 H products of order 1 / √(4 H).
        ExpectNear(ToHost(device_mixes), coefficients, 2e-5, "coefficient");
        ExpectNear(FloatsToHost(device_out, dtype), out, 2e-5 + Epsilon(dtype), "input");
        HyperLeave(stream_, {.streams = device_streams.View(DType::kF32, whole),
                             .y = device_y.View(dtype, rows),
                             .coefficients = device_mixes.View(DType::kF32, mixes)});
        Floats host_y = y;
        HyperLeaveReference({.streams = View(streams, whole),
                             .y = View(host_y, rows),
                             .coefficients = View(coefficients, mixes)});
        ExpectNear(ToHost(device_streams), streams, 1e-4, "stream");
      }
    }
  }
}

TEST_F(HyperConnectionGpuTest, CollapsesAndExpandsAsTheCpuDoes) {
  constexpr int64_t kTokens = 5, kWidth = 96;
  constexpr size_t kSize = kTokens * kWidth;
  const Floats fn = Fn(S, S * kWidth);
  const PackedMatrix packed = Pack(fn, S, S * kWidth);
  const auto cpu = MakeCpuDevice(0);
  const auto* data = reinterpret_cast<const std::byte*>(fn.data());
  const MatrixPiece piece = MatrixPiece::Whole({data, DType::kF32, {S, S * kWidth}});
  const PackedMatrix host_packed = PackMatrix(*cpu, {&piece, 1}, MatmulPrecision::kExact).value();
  const Floats base = RandomNormals(S, 2), scale = {0.7f}, norm = RandomNormals(kWidth, 3),
               pre = RandomNormals(kTokens * 7, 6);
  const auto device_base = ToDevice(base), device_scale = ToDevice(scale),
             device_norm = ToDevice(norm), device_pre = ToDevice(pre);
  Workspace workspace(Buffer::Allocate(*device_, 1 << 22).value());
  Workspace cpu_workspace(Buffer::Allocate(*cpu, 1 << 22).value());
  Floats x = RandomNormals(kSize, 7), streams(S * kSize);
  const auto device_x = ToDevice(x), device_streams = Poisoned<float>(S * kSize);
  HyperExpand(stream_, device_streams.View(DType::kF32, {kTokens, S, kWidth}),
              device_x.View(DType::kF32, {kTokens, kWidth}));
  HyperExpand({}, View(streams, {kTokens, S, kWidth}), View(x, {kTokens, kWidth}));
  ASSERT_EQ(ToHost(device_streams), streams);
  for (const bool given : {false, true}) {
    for (const bool normed : {false, true}) {
      streams = RandomNormals(S * kSize, 8);
      const auto own_streams = ToDevice(streams);
      const auto out = Poisoned<float>(kSize);
      HyperCollapseArgs args = {.out = out.View(DType::kF32, {kTokens, kWidth}),
                                .streams = own_streams.View(DType::kF32, {kTokens, S, kWidth}),
                                .norm = normed ? device_norm.data() : nullptr};
      if (given) {
        args.pre = device_pre.data();
        args.pre_stride = 7;
      } else {
        args.weights = {.fn = &packed, .base = device_base.data(), .scale = device_scale.data()};
      }
      HyperCollapse(stream_, workspace, args);
      Floats want(kSize);
      args.out = View(want, {kTokens, kWidth});
      args.streams = View(streams, {kTokens, S, kWidth});
      args.norm = normed ? norm.data() : nullptr;
      if (given) args.pre = pre.data();
      args.weights.fn = &host_packed;
      args.weights.base = base.data();
      args.weights.scale = scale.data();
      HyperCollapse({}, cpu_workspace, args);
      ExpectNear(ToHost(out), want, 2e-5, "sum");
    }
  }
}

TEST_F(HyperConnectionGpuTest, AddsToAllStreamsAndTakesTheirMeans) {
  for (const int64_t h : {1, 33, 1024, 7168}) {
    constexpr int64_t kTokens = 5;
    const int64_t stride = 3 * h;
    Floats streams = RandomNormals(static_cast<size_t>(S * kTokens * h), 1);
    Floats x = RandomNormals(static_cast<size_t>(kTokens * h), 2);
    Floats means(static_cast<size_t>(kTokens * stride), 7.0f);
    const Shape whole{kTokens, S, h}, rows{kTokens, h};
    const auto device_streams = ToDevice(streams), device_x = ToDevice(x),
               device_means = ToDevice(means);
    HyperAdd({}, View(streams, whole), View(x, rows));
    HyperMeans({}, View(means, rows), stride, View(streams, whole));
    HyperAdd(stream_, device_streams.View(DType::kF32, whole), device_x.View(DType::kF32, rows));
    HyperMeans(stream_, device_means.View(DType::kF32, rows), stride,
               device_streams.View(DType::kF32, whole));
    // The same sums in the same order; what lies beside the means is left alone.
    EXPECT_EQ(ToHost(device_streams), streams);
    EXPECT_EQ(ToHost(device_means), means);
  }
}

}  // namespace
}  // namespace hayate::ops
