#pragma once
// An RMS norm whose division is left to the product that reads its rows, which may as well divide
// its sums. Row t of the norm is values[t] / √(Σ_i squares[t, i] / columns + eps).

#include <cstdint>

namespace hayate::ops {

struct DeferredNorm {
  const float* squares = nullptr;  // [T, parts], sums of squares; null: the rows are whole
  int32_t parts = 0;
  int32_t columns = 0;
  float eps = 0.0f;

  bool pending() const { return squares != nullptr; }
};

}  // namespace hayate::ops
