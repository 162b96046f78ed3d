#pragma once
// Passes over a row of logits: everything in sampling that costs time proportional to the
// vocabulary.

#include <cstdint>
#include <span>

#include "tensor/cpu_features.h"

namespace hayate::ops::sampling {

struct Highest {
  float logit;  // −∞ for an empty row; unspecified with NaN
  bool has_nan;
};

struct ScanKernels {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);

  Highest (*highest)(const float* logits, int64_t count);
  // The first index whose logit equals `value`; count when there is none.
  int64_t (*find)(const float* logits, int64_t count, float value);
  int64_t (*count_above)(const float* logits, int64_t count, float value);
  // Σ of the masses that are at least `least`.
  uint64_t (*sum_mass)(const float* logits, int64_t count, float highest, float inv_temperature,
                       uint64_t least);
  // Appends the keys of logits ≥ `threshold` from index *next on, in order of id, until the row
  // ends or fewer than kCollectSlack places are free. Returns how many; *next is where to go on.
  int64_t (*collect)(const float* logits, int64_t count, float threshold, uint64_t* keys,
                     int64_t capacity, int64_t* next);
};
inline constexpr int64_t kCollectSlack = 16;

// Best first; the last runs anywhere.
std::span<const ScanKernels> AllScanKernels();

}  // namespace hayate::ops::sampling
