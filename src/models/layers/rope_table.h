#pragma once
// A model's rotation frequencies in the memory of its device.

#include "base/status.h"
#include "ops/rope/rope.h"
#include "tensor/buffer.h"

namespace hayate::models {

struct RopeTable {
  Buffer inv_freq;  // [rotary_dim / 2] f32
  float attention_factor = 1.0f;
};
Result<RopeTable> PlaceFrequencies(Device& device, const ops::RopeFrequencies& frequencies);

}  // namespace hayate::models
