#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace hayate {

float Rng::NextNormal() {
  const float u = 1.0f - NextFloat();  // (0, 1]: the logarithm stays finite
  const float v = NextFloat();
  return std::sqrt(-2.0f * std::log(u)) * std::cos(2.0f * std::numbers::pi_v<float> * v);
}

}  // namespace hayate
