#pragma once
// fp32 sums in a fixed order that compilers vectorise: 16 lanes, folded in halves. The order
// depends on the length alone, so equal rows give equal bits wherever they stand.

#include <cstdint>

namespace hayate::ops::detail {

inline constexpr int kLanes = 16;

inline float FoldLanes(float* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Σ a[i]·b[i].
inline float Dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += a[i] * b[i];
  return FoldLanes(lanes);
}

// y[i] += scale·x[i].
inline void AddScaled(float* y, float scale, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

}  // namespace hayate::ops::detail
