#pragma once
// The logits of guesses, where they are more than one product.

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

// DSpark's guess i of N rows: what the block gives for its place, corrected by the guess before.
//
//   logits[n, c]   = base[n · B + i, c] + added[n, c]
//   confidences[n] = sigmoid(proj · [states[n · B + i]; before[n]])
struct MarkovGuessArgs {
  float* logits = nullptr;  // [N, ·], rows `logits_stride` floats apart
  int64_t logits_stride = 0;
  float* confidences = nullptr;  // [N]
  ConstTensorView base;          // [N · B, W]
  ConstTensorView added;         // [N, W]
  ConstTensorView states;        // [N · B, H]
  ConstTensorView before;        // [N, M]
  const float* proj = nullptr;   // [H + M]
  int32_t block = 0;             // B
  int32_t guess = 0;             // i
};
void MarkovGuess(Stream stream, const MarkovGuessArgs& args);

// Logits of a vocabulary of its own in that of another model: by column v of the V,
// source[v] ≥ 0: logits[n, v] = from[n, source[v]]; kNoSource: −∞; kOthers: left as it is.
struct MapLogitsArgs {
  static constexpr int32_t kNoSource = -1;
  static constexpr int32_t kOthers = -2;

  TensorView logits;                // [N, V]
  ConstTensorView from;             // [N, W]
  const int32_t* source = nullptr;  // [V]
};
void MapLogits(Stream stream, const MapLogitsArgs& args);

}  // namespace hayate::ops
