#include <cmath>
#include <vector>

#include "ops/compress/compress.h"

namespace hayate::ops {

void CompressReference(float* out, const float* kv, const float* gate, const float* ape, int64_t t,
                       int32_t ratio, int32_t width, int32_t head_dim) {
  const bool overlaps = width != head_dim;
  for (int64_t b = 0; b < t / ratio; ++b) {
    for (int32_t c = 0; c < head_dim; ++c) {
      std::vector<double> gates, values;
      const auto add = [&](int64_t block, int32_t channel) {
        for (int32_t s = 0; s < ratio; ++s) {
          const int64_t at = (block * ratio + s) * width + channel;
          gates.push_back(double{gate[at]} + (ape == nullptr ? 0.0 : ape[s * width + channel]));
          values.push_back(kv[at]);
        }
      };
      if (overlaps && b > 0) add(b - 1, c);
      add(b, overlaps ? head_dim + c : c);
      double sum = 0.0, weighted = 0.0;
      for (size_t i = 0; i < gates.size(); ++i) {
        sum += std::exp(gates[i]);
        weighted += std::exp(gates[i]) * values[i];
      }
      out[b * head_dim + c] = static_cast<float>(weighted / sum);
    }
  }
}

}  // namespace hayate::ops
