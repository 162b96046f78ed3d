#pragma once
// A golden case: a folder with a tiny checkpoint and, in expected.safetensors, what the official
// implementation computed for it.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace hayate::models::testing {

struct GoldenCase {
  std::vector<int32_t> input_ids, greedy;
  std::vector<float> logits;         // [T, V]
  std::vector<float> greedy_logits;  // [8, V]
};

template <typename T>
std::vector<T> GoldenValues(const weights::Checkpoint& file, std::string_view name) {
  const ConstTensorView tensor = file.Tensor(name).value();
  const T* values = reinterpret_cast<const T*>(tensor.data);
  return std::vector<T>(values, values + tensor.shape.num_elements());
}

inline GoldenCase ReadGoldenCase(const std::filesystem::path& folder) {
  const auto file = weights::Checkpoint::Open(folder / "expected.safetensors").value();
  return {GoldenValues<int32_t>(file, "input_ids"), GoldenValues<int32_t>(file, "greedy"),
          GoldenValues<float>(file, "logits"), GoldenValues<float>(file, "greedy_logits")};
}

// The names of the cases in a folder of tests/golden, sorted.
inline std::vector<std::string> GoldenCases(const std::filesystem::path& family) {
  std::set<std::string> cases;
  for (const auto& entry : std::filesystem::directory_iterator(family)) {
    if (std::filesystem::exists(entry.path() / "expected.safetensors")) {
      cases.insert(entry.path().filename());
    }
  }
  return {cases.begin(), cases.end()};
}

// The largest difference; infinite where sizes differ or a value is NaN.
inline float WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<float>::infinity();
  float worst = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<float>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace hayate::models::testing
