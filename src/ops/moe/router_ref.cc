#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/moe/router.h"

namespace hayate::ops {
namespace {

using Values = std::vector<double>;

// Indices of `values` from the largest down; of equals the smaller index first.
std::vector<int32_t> Descending(const Values& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

Values Softmax(const Values& z) {
  const double max = *std::ranges::max_element(z);
  Values p;
  for (const double value : z) p.push_back(std::exp(value - max));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

Values Scores(RouterScore score, const Values& z) {
  if (score == RouterScore::kSoftmax) return Softmax(z);
  Values s = z;
  for (double& value : s) {
    if (score == RouterScore::kSigmoid) value = 1.0 / (1.0 + std::exp(-value));
    if (score == RouterScore::kSqrtSoftplus) value = std::sqrt(std::log1p(std::exp(value)));
  }
  return s;
}

std::vector<int32_t> Chosen(const RouterConfig& config, const Values& choice) {
  const size_t size = choice.size() / static_cast<size_t>(config.num_groups);
  Values group_sums;
  for (int32_t g = 0; g < config.num_groups; ++g) {
    Values group(choice.begin() + g * static_cast<long>(size),
                 choice.begin() + (g + 1) * static_cast<long>(size));
    std::ranges::sort(group, std::greater());
    group_sums.push_back(size > 1 ? group[0] + group[1] : group[0]);
  }
  std::vector<int32_t> groups = Descending(group_sums);
  groups.resize(static_cast<size_t>(config.top_groups));
  std::vector<int32_t> chosen;
  for (const int32_t expert : Descending(choice)) {
    const bool kept =
        std::ranges::find(groups, expert / static_cast<int32_t>(size)) != groups.end();
    if (kept && std::ssize(chosen) < config.top_k) chosen.push_back(expert);
  }
  return chosen;
}

}  // namespace

void RouteReference(const RouterConfig& config, const RouteArgs& args) {
  for (int64_t t = 0; t < args.logits.rows(); ++t) {
    const float* row = args.logits.as<float>() + t * config.num_experts;
    const Values z(row, row + config.num_experts);
    const Values s = Scores(config.score, z);
    Values choice = s;
    for (size_t e = 0; e < choice.size() && args.choice_bias != nullptr; ++e) {
      choice[e] += double{args.choice_bias[e]};
    }
    std::vector<int32_t> chosen = Chosen(config, choice);
    if (args.listed != nullptr) {
      const int32_t* listed = args.listed + int64_t{args.token_ids[t]} * config.top_k;
      chosen.assign(listed, listed + config.top_k);
    }
    Values weights;
    for (const int32_t expert : chosen) weights.push_back(s[static_cast<size_t>(expert)]);
    if (config.score == RouterScore::kSoftmaxOfChosen) {
      weights = Softmax(weights);
    } else if (config.renormalise) {
      const double sum =
          std::accumulate(weights.begin(), weights.end(), 0.0) + double{config.sum_epsilon};
      for (double& weight : weights) weight /= sum;
    }
    for (size_t j = 0; j < chosen.size(); ++j) {
      args.experts[t * config.top_k + static_cast<int64_t>(j)] = chosen[j];
      args.weights[t * config.top_k + static_cast<int64_t>(j)] =
          static_cast<float>(weights[j] * double{config.scale});
    }
  }
}

}  // namespace hayate::ops
