#pragma once
// What one core (measured) or one GPU can do at most: the rates that operators are held against.

#include <cstdint>

#include "tensor/cpu_features.h"

namespace hayate::bench {

struct Roofline {
  double read_gb_per_s = 0.0;     // from memory, of a buffer that no cache holds
  double fp32_gflop_per_s = 0.0;  // multiply-adds count as two, here and below
  double bf16_gflop_per_s = 0.0;  // products of bf16, sums in fp32; 0: the CPU has none
  double int8_gop_per_s = 0.0;    // products of 8 bits, sums in 32; 0: the CPU has none
  double fp8_gflop_per_s = 0.0;   // products of fp8, sums in fp32; 0: a CPU
};

// Takes about a second on the calling thread.
Roofline MeasureRoofline(const CpuFeatures& features);

// Bytes that a benchmark rotates through so that each call finds its data in no cache.
int64_t ColdBytes();

}  // namespace hayate::bench
