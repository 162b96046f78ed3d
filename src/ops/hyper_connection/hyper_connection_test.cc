#include "ops/hyper_connection/hyper_connection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/sparse_attention/testing/paged_rows.h"

namespace hayate::ops {
namespace {

using testing::RandomFloats;
using testing::ViewOf;

constexpr int S = kHyperStreams;

class HyperTest : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  HyperTest()
      : tokens_(GetParam().first),
        width_(GetParam().second),
        fn_(RandomFloats(kHyperMixes * S * width_, rng_)),
        base_(RandomFloats(kHyperMixes, rng_)),
        scale_{1.1f, 0.9f, 1.2f},
        norm_(RandomFloats(width_, rng_)),
        streams_(RandomFloats(tokens_ * S * width_, rng_)),
        y_(RandomFloats(tokens_ * width_, rng_)) {
    for (float& value : fn_) value /= std::sqrt(static_cast<float>(S * width_));
    const MatrixPiece piece = MatrixPiece::Whole(ViewOf(fn_, {kHyperMixes, S * width_}));
    packed_ = PackMatrix(*device_, {&piece, 1}, MatmulPrecision::kExact).value();
  }
  HyperEnterArgs Enter(std::vector<float>& out, std::vector<float>& coefficients) {
    out.assign(static_cast<size_t>(tokens_ * width_), NAN);
    coefficients.assign(static_cast<size_t>(tokens_ * kHyperMixes), NAN);
    return {.out = ViewOf(out, {tokens_, width_}),
            .coefficients = ViewOf(coefficients, {tokens_, kHyperMixes}),
            .streams = ViewOf(streams_, {tokens_, S, width_}),
            .weights = {.fn = &packed_, .base = base_.data(), .scale = scale_},
            .norm = norm_.data()};
  }
  static void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected,
                          float tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
    }
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  Workspace workspace_{Buffer::Allocate(*device_, size_t{4} << 20).value()};
  Rng rng_{9};
  int64_t tokens_, width_;
  std::vector<float> fn_, base_;
  float scale_[3];
  std::vector<float> norm_, streams_, y_;
  PackedMatrix packed_;
};

TEST_P(HyperTest, EnterAndLeaveEqualTheirDefinitions) {
  std::vector<float> out, coefficients, expected_out, expected_coefficients;
  HyperEnter({}, workspace_, Enter(out, coefficients));
  HyperEnterReference(Enter(expected_out, expected_coefficients), fn_.data());
  // Coefficients are below 2; twenty scalings keep relative errors of a few ulp.
  ExpectClose(coefficients, expected_coefficients, 5e-6f);
  ExpectClose(out, expected_out, 5e-5f);

  std::vector<float> streams = streams_, expected = streams_;
  HyperLeaveArgs leave = {.streams = ViewOf(streams, {tokens_, S, width_}),
                          .y = ViewOf(y_, {tokens_, width_}),
                          .coefficients = ViewOf(coefficients, {tokens_, kHyperMixes})};
  HyperLeave({}, leave);
  leave.streams = ViewOf(expected, {tokens_, S, width_});
  HyperLeaveReference(leave);
  ExpectClose(streams, expected, 1e-5f);
}

TEST_P(HyperTest, TheMatrixIsDoublyStochasticAndApplyingItUntransposedIsAnotherResult) {
  std::vector<float> out, coefficients;
  HyperEnter({}, workspace_, Enter(out, coefficients));
  float asymmetry = 0.0f;
  for (int64_t t = 0; t < tokens_; ++t) {
    const float* c = coefficients.data() + t * kHyperMixes + kHyperMatrix;
    for (int j = 0; j < S; ++j) {
      float row = 0.0f, column = 0.0f;
      for (int k = 0; k < S; ++k) {
        row += c[S * j + k];
        column += c[S * k + j];
        asymmetry = std::max(asymmetry, std::fabs(c[S * j + k] - c[S * k + j]));
      }
      EXPECT_NEAR(row, 1.0f, 1e-3f);
      EXPECT_NEAR(column, 1.0f, 1e-4f);
    }
  }
  EXPECT_GT(asymmetry, 0.05f);
}

TEST_P(HyperTest, AnEarlierPreReplacesItsOwn) {
  std::vector<float> out, coefficients, expected, same;
  const std::vector<float> pre = RandomFloats(tokens_ * 7, rng_);
  HyperEnterArgs args = Enter(out, coefficients);
  args.pre = pre.data();
  args.pre_stride = 7;
  HyperEnter({}, workspace_, args);
  HyperEnterArgs reference = Enter(expected, same);
  reference.pre = pre.data();
  reference.pre_stride = 7;
  HyperEnterReference(reference, fn_.data());
  ExpectClose(out, expected, 5e-5f);
  // The end of the trunk with a given pre is the same sum.
  std::vector<float> collapsed(out.size());
  HyperCollapse({}, workspace_,
                {.out = ViewOf(collapsed, {tokens_, width_}),
                 .streams = ViewOf(streams_, {tokens_, S, width_}),
                 .pre = pre.data(),
                 .pre_stride = 7,
                 .norm = norm_.data(),
                 .norm_eps = args.weights.norm_eps});
  EXPECT_EQ(collapsed, out);
}

TEST_P(HyperTest, ATokenDoesNotDependOnItsBatch) {
  std::vector<float> out, coefficients, alone_out, alone_coefficients;
  HyperEnter({}, workspace_, Enter(out, coefficients));
  const int64_t last = tokens_ - 1;
  streams_.erase(streams_.begin(), streams_.begin() + last * S * width_);
  tokens_ = 1;
  HyperEnter({}, workspace_, Enter(alone_out, alone_coefficients));
  EXPECT_TRUE(std::equal(alone_out.begin(), alone_out.end(), out.begin() + last * width_));
  EXPECT_TRUE(std::equal(alone_coefficients.begin(), alone_coefficients.end(),
                         coefficients.begin() + last * kHyperMixes));
}

INSTANTIATE_TEST_SUITE_P(Shapes, HyperTest,
                         ::testing::Values(std::pair{1, 1}, std::pair{3, 7}, std::pair{5, 64},
                                           std::pair{17, 100}, std::pair{2, 1024}));

}  // namespace
}  // namespace hayate::ops
