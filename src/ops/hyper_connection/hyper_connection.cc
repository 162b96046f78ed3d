#include "ops/hyper_connection/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/detail/lanes.h"
#include "ops/hyper_connection/sm90/hyper_connection.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

constexpr int S = kHyperStreams;

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// C of one token in place: softmax of each row, then alternating scalings.
void Sinkhorn(float* c, float eps, int32_t iterations) {
  for (int j = 0; j < S; ++j) {
    float* row = c + j * S;
    const float most = std::max(std::max(row[0], row[1]), std::max(row[2], row[3]));
    float sum = 0.0f;
    for (int k = 0; k < S; ++k) sum += row[k] = std::exp(row[k] - most);
    for (int k = 0; k < S; ++k) row[k] = row[k] / sum + eps;
  }
  for (int32_t i = 0; i < iterations; ++i) {
    for (int j = 0; i > 0 && j < S; ++j) {
      float* row = c + j * S;
      const float sum = row[0] + row[1] + row[2] + row[3] + eps;
      for (int k = 0; k < S; ++k) row[k] /= sum;
    }
    for (int k = 0; k < S; ++k) {
      const float sum = c[k] + c[S + k] + c[2 * S + k] + c[3 * S + k] + eps;
      for (int j = 0; j < S; ++j) c[j * S + k] /= sum;
    }
  }
}

// mix [count] becomes pre, post and C. `count` = S: pre alone.
void FinishCoefficients(float* mix, float inverse_norm, const HyperConnection& weights, int count) {
  const auto affine = [&](int i, int scale) {
    return mix[i] * inverse_norm * weights.scale[scale] + weights.base[i];
  };
  for (int j = 0; j < S; ++j) mix[j] = Sigmoid(affine(j, 0)) + weights.eps;
  if (count == S) return;
  for (int k = kHyperPost; k < kHyperMatrix; ++k) mix[k] = 2.0f * Sigmoid(affine(k, 1));
  for (int i = kHyperMatrix; i < kHyperMixes; ++i) mix[i] = affine(i, 2);
  Sinkhorn(mix + kHyperMatrix, weights.eps, weights.iterations);
}

// mix [T, count] of all tokens, finished.
void Coefficients(Stream stream, Workspace& workspace, ConstTensorView streams,
                  const HyperConnection& weights, TensorView mix) {
  const int64_t tokens = streams.shape[0], width = S * streams.shape[2];
  const auto count = static_cast<int>(mix.cols());
  DCHECK(weights.fn->n == count && weights.fn->k == width);
  Matmul(stream, workspace,
         {.out = mix,
          .x = ConstTensorView{streams.data, DType::kF32, {tokens, width}},
          .w = weights.fn});
  for (int64_t t = 0; t < tokens; ++t) {
    const float* x = streams.as<float>() + t * width;
    const float mean = detail::Dot(x, x, width) / static_cast<float>(width);
    FinishCoefficients(mix.as<float>() + t * count, 1.0f / std::sqrt(mean + weights.norm_eps),
                       weights, count);
  }
}

// out [H] = RmsNorm(Σ_j pre[j]·streams[j]), or the sum itself without a norm.
void CollapseToken(float* out, const float* streams, const float* pre, const float* norm, float eps,
                   int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    out[i] = pre[0] * streams[i] + pre[1] * streams[width + i] + pre[2] * streams[2 * width + i] +
             pre[3] * streams[3 * width + i];
  }
  if (norm == nullptr) return;
  const float mean = detail::Dot(out, out, width) / static_cast<float>(width);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < width; ++i) out[i] = out[i] * inverse * norm[i];
}

}  // namespace

void HyperEnter(Stream stream, Workspace& workspace, const HyperEnterArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperEnter(stream, workspace, args);
  }
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  DCHECK_EQ(args.streams.shape[1], S);
  Coefficients(stream, workspace, args.streams, args.weights, args.coefficients);
  const float* pre = args.pre != nullptr ? args.pre : args.coefficients.as<float>();
  const int64_t stride = args.pre != nullptr ? args.pre_stride : kHyperMixes;
  for (int64_t t = 0; t < tokens; ++t) {
    CollapseToken(args.out.as<float>() + t * width, args.streams.as<float>() + t * S * width,
                  pre + t * stride, args.norm, args.weights.norm_eps, width);
  }
}

void HyperLeave(Stream stream, const HyperLeaveArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperLeave(stream, args);
  }
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  for (int64_t t = 0; t < tokens; ++t) {
    float* h = args.streams.as<float>() + t * S * width;
    const float* y = args.y.as<float>() + t * width;
    const float* post = args.coefficients.as<float>() + t * kHyperMixes + kHyperPost;
    const float* c = args.coefficients.as<float>() + t * kHyperMixes + kHyperMatrix;
    for (int64_t i = 0; i < width; ++i) {
      const float h0 = h[i], h1 = h[width + i], h2 = h[2 * width + i], h3 = h[3 * width + i];
      for (int k = 0; k < S; ++k) {
        h[k * width + i] =
            post[k] * y[i] + (c[k] * h0 + c[S + k] * h1 + c[2 * S + k] * h2 + c[3 * S + k] * h3);
      }
    }
  }
}

void HyperCollapse(Stream stream, Workspace& workspace, const HyperCollapseArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperCollapse(stream, workspace, args);
  }
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  const size_t mark = workspace.mark();
  const float* pre = args.pre;
  int64_t stride = args.pre_stride;
  if (pre == nullptr) {
    const TensorView own = workspace.Take(DType::kF32, {tokens, S});
    Coefficients(stream, workspace, args.streams, args.weights, own);
    pre = own.as<float>();
    stride = S;
  }
  for (int64_t t = 0; t < tokens; ++t) {
    CollapseToken(args.out.as<float>() + t * width, args.streams.as<float>() + t * S * width,
                  pre + t * stride, args.norm, args.norm_eps, width);
  }
  workspace.ResetTo(mark);
}

void HyperExpand(Stream stream, TensorView streams, ConstTensorView x) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperExpand(stream, streams, x);
  }
  const int64_t tokens = x.shape[0], width = x.shape[1];
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x.as<float>() + t * width;
    for (int j = 0; j < S; ++j) {
      std::copy_n(row, width, streams.as<float>() + (t * S + j) * width);
    }
  }
}

void HyperAdd(Stream stream, TensorView streams, ConstTensorView x) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperAdd(stream, streams, x);
  }
  const int64_t tokens = x.shape[0], width = x.shape[1];
  float* to = streams.as<float>();
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x.as<float>() + t * width;
    for (int j = 0; j < S; ++j, to += width) {
      for (int64_t i = 0; i < width; ++i) to[i] += row[i];
    }
  }
}

void HyperMeans(Stream stream, TensorView out, int64_t row_stride, ConstTensorView streams) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperMeans(stream, out, row_stride, streams);
  }
  const int64_t tokens = streams.shape[0], width = streams.shape[2];
  for (int64_t t = 0; t < tokens; ++t) {
    const float* h = streams.as<float>() + t * S * width;
    for (int64_t i = 0; i < width; ++i) {
      float sum = 0.0f;
      for (int64_t j = 0; j < S; ++j) sum += h[j * width + i];
      out.as<float>()[t * row_stride + i] = sum / static_cast<float>(S);
    }
  }
}

void HyperTakeFirst(Stream stream, TensorView coefficients) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::HyperTakeFirst(stream, coefficients);
  }
  float* pre = coefficients.as<float>();
  for (int64_t t = 0; t < coefficients.rows(); ++t, pre += coefficients.cols()) {
    std::fill_n(pre, S, 0.0f);
    pre[0] = 1.0f;
  }
}

int64_t HyperWorkspaceBytes(int64_t max_tokens, int64_t hidden_size) {
  const int64_t bytes = MatmulWorkspaceBytes(max_tokens, S * hidden_size) +
                        max_tokens * S * static_cast<int64_t>(sizeof(float)) +
                        static_cast<int64_t>(Workspace::kAlignment);
  if constexpr (kCudaBuild) return std::max(bytes, sm90::HyperWorkspaceBytes(max_tokens));
  return bytes;
}

}  // namespace hayate::ops
