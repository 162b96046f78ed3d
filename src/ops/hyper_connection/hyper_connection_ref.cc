// The formulas of hyper_connection.h, one by one, in double.

#include <cmath>
#include <vector>

#include "ops/hyper_connection/hyper_connection.h"

namespace hayate::ops {
namespace {

constexpr int S = kHyperStreams;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void ScaleRows(double (&c)[S][S], double eps) {
  for (auto& row : c) {
    double sum = eps;
    for (const double value : row) sum += value;
    for (double& value : row) value /= sum;
  }
}

void ScaleColumns(double (&c)[S][S], double eps) {
  for (int k = 0; k < S; ++k) {
    double sum = eps;
    for (int j = 0; j < S; ++j) sum += c[j][k];
    for (int j = 0; j < S; ++j) c[j][k] /= sum;
  }
}

}  // namespace

void HyperCoefficientsReference(float* coefficients, const float* streams, const float* fn,
                                const HyperConnection& weights, int64_t hidden_size) {
  const int64_t width = S * hidden_size;
  double squares = 0.0;
  for (int64_t i = 0; i < width; ++i) squares += double{streams[i]} * streams[i];
  const double inverse =
      1.0 / std::sqrt(squares / static_cast<double>(width) + double{weights.norm_eps});
  double value[kHyperMixes];
  for (int m = 0; m < kHyperMixes; ++m) {
    double mix = 0.0;
    for (int64_t i = 0; i < width; ++i) mix += double{fn[m * width + i]} * streams[i];
    const float scale = weights.scale[m < kHyperPost ? 0 : m < kHyperMatrix ? 1 : 2];
    value[m] = mix * inverse * scale + weights.base[m];
  }
  for (int j = 0; j < S; ++j) {
    coefficients[j] = static_cast<float>(Sigmoid(value[j]) + double{weights.eps});
    coefficients[kHyperPost + j] = static_cast<float>(2.0 * Sigmoid(value[kHyperPost + j]));
  }
  double c[S][S];
  for (int j = 0; j < S; ++j) {
    double sum = 0.0;
    for (int k = 0; k < S; ++k) sum += std::exp(value[kHyperMatrix + S * j + k]);
    for (int k = 0; k < S; ++k) {
      c[j][k] = std::exp(value[kHyperMatrix + S * j + k]) / sum + double{weights.eps};
    }
  }
  ScaleColumns(c, double{weights.eps});
  for (int i = 1; i < weights.iterations; ++i) {
    ScaleRows(c, double{weights.eps});
    ScaleColumns(c, double{weights.eps});
  }
  for (int j = 0; j < S; ++j) {
    for (int k = 0; k < S; ++k) {
      coefficients[kHyperMatrix + S * j + k] = static_cast<float>(c[j][k]);
    }
  }
}

void HyperEnterReference(const HyperEnterArgs& args, const float* fn) {
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  std::vector<double> u(static_cast<size_t>(width));
  for (int64_t t = 0; t < tokens; ++t) {
    const float* streams = args.streams.as<float>() + t * S * width;
    float* coefficients = args.coefficients.as<float>() + t * kHyperMixes;
    HyperCoefficientsReference(coefficients, streams, fn, args.weights, width);
    const float* pre = args.pre != nullptr ? args.pre + t * args.pre_stride : coefficients;
    double squares = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      double sum = 0.0;
      for (int j = 0; j < S; ++j) sum += double{pre[j]} * streams[j * width + i];
      u[static_cast<size_t>(i)] = sum;
      squares += sum * sum;
    }
    const double inverse =
        1.0 / std::sqrt(squares / static_cast<double>(width) + double{args.weights.norm_eps});
    for (int64_t i = 0; i < width; ++i) {
      args.out.as<float>()[t * width + i] =
          static_cast<float>(u[static_cast<size_t>(i)] * inverse * args.norm[i]);
    }
  }
}

void HyperLeaveReference(const HyperLeaveArgs& args) {
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  for (int64_t t = 0; t < tokens; ++t) {
    float* h = args.streams.as<float>() + t * S * width;
    const float* coefficients = args.coefficients.as<float>() + t * kHyperMixes;
    for (int64_t i = 0; i < width; ++i) {
      double mixed[S];
      for (int k = 0; k < S; ++k) {
        mixed[k] = double{coefficients[kHyperPost + k]} * args.y.as<float>()[t * width + i];
        for (int j = 0; j < S; ++j) {
          mixed[k] += double{coefficients[kHyperMatrix + S * j + k]} * h[j * width + i];
        }
      }
      for (int k = 0; k < S; ++k) h[k * width + i] = static_cast<float>(mixed[k]);
    }
  }
}

}  // namespace hayate::ops
