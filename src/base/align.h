#pragma once
// Rounding to multiples.

namespace hayate {

template <typename T>
constexpr T CeilDiv(T value, T divisor) {
  return (value + divisor - 1) / divisor;
}
template <typename T>
constexpr T AlignUp(T value, T multiple) {
  return CeilDiv(value, multiple) * multiple;
}
template <typename T>
constexpr T AlignDown(T value, T multiple) {
  return value / multiple * multiple;
}

}  // namespace hayate
