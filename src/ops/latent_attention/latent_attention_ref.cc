#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/latent_attention/latent_attention.h"

namespace hayate::ops {
namespace {

// matrix [n, k] · x [k].
std::vector<double> Times(const float* matrix, int64_t n, int64_t k, const float* x) {
  std::vector<double> out(static_cast<size_t>(n), 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      out[static_cast<size_t>(i)] += double{matrix[i * k + j]} * double{x[j]};
    }
  }
  return out;
}

double Product(const float* q, const double* k, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{q[i]} * k[i];
  return sum;
}

}  // namespace

void LatentAttentionReference(const LatentAttentionArgs& args, const std::vector<float>& uk,
                              const std::vector<float>& uv) {
  const LatentProjections& p = *args.projections;
  const int64_t l = p.latent_dim, dn = p.nope_dim, rope = p.rope_dim, dv = p.value_dim;
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    for (int64_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      std::vector<int32_t> keys(static_cast<size_t>(args.positions[t] + 1));
      std::iota(keys.begin(), keys.end(), 0);
      if (args.selected != nullptr) {
        const int32_t* list = args.selected + t * args.selected_stride;
        keys.assign(list, list + args.selected_count[t]);
      }
      for (int64_t h = 0; h < p.num_heads; ++h) {
        const float* q = args.q.as<float>() + (t * p.num_heads + h) * (dn + rope);
        std::vector<double> scores;
        std::vector<std::vector<double>> values;
        for (const int32_t key : keys) {
          std::vector<float> row(static_cast<size_t>(l + rope));
          LoadLatentRow(args.cache, args.rows.PagesOf(r)[key / args.cache.page_rows],
                        key % args.cache.page_rows, row.data());
          const std::vector<double> k = Times(uk.data() + h * dn * l, dn, l, row.data());
          const std::vector<double> turned(row.begin() + l, row.end());
          scores.push_back(double{args.scale} *
                           (Product(q, k.data(), dn) + Product(q + dn, turned.data(), rope)));
          values.push_back(Times(uv.data() + h * dv * l, dv, l, row.data()));
        }
        const double max = *std::ranges::max_element(scores);
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - max);
        float* out = args.out.as<float>() + (t * p.num_heads + h) * dv;
        for (int64_t i = 0; i < dv; ++i) {
          double value = 0;
          for (size_t j = 0; j < scores.size(); ++j) {
            value += scores[j] / sum * values[j][static_cast<size_t>(i)];
          }
          out[i] = static_cast<float>(value);
        }
      }
    }
  }
}

}  // namespace hayate::ops
