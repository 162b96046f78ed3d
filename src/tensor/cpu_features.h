#pragma once
// Which instruction sets the CPU kernels may use. Every kernel is compiled for all of them into one
// binary and chosen at run time.

#include <string>

namespace hayate {

struct CpuFeatures {
  bool avx2 = false;         // AVX2 + FMA + F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // VPDPBUSD, 512-bit
  bool avx512_bf16 = false;  // VDPBF16PS
  bool amx_int8 = false;     // AMX tiles, int8 and bf16, granted by the kernel
  friend bool operator==(const CpuFeatures&, const CpuFeatures&) = default;
};

// Read once from CPUID (and, for AMX, arch_prctl). HAYATE_CPU=ref|avx2|avx512|vnni|bf16 at process
// start lowers the choice to that level, for tests and timing of the lower paths.
const CpuFeatures& DetectCpuFeatures();
// "avx512-vnni-bf16", "avx2", "plain".
std::string ToString(const CpuFeatures& features);

}  // namespace hayate
