#include "ops/matmul/avx512/kernels.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {
namespace {

bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }
bool RunsOnVnni(const CpuFeatures& features) { return features.avx512_vnni; }
bool RunsOnBf16(const CpuFeatures& features) {
  return features.avx512_vnni && features.avx512_bf16;
}

void Run(Layout layout, const KernelArgs& args) {
  if (InfoOf(layout).codes != Codes::kFloat) return RunInt8(layout, args);
  // kBf16Dot is never packed for this implementation; it is read as the portable one does.
  if (layout == Layout::kBf16Dot) return PlainKernels().run(layout, args);
  RunFloat(layout, args);
}

void RunVnni(Layout layout, const KernelArgs& args) {
  if (InfoOf(layout).codes != Codes::kFloat) return RunInt8Vnni(layout, args);
  Run(layout, args);
}

void RunBf16(Layout layout, const KernelArgs& args) {
  if (layout == Layout::kBf16Dot) return RunFloat(layout, args);
  RunVnni(layout, args);
}

}  // namespace

const Kernels& Avx512Kernels() {
  static const Kernels kKernels = {
      .name = "avx512",
      .runs_on = RunsOnAvx512,
      .bf16_dot = false,
      .quantize = Quantize,
      .to_bf16 = PlainKernels().to_bf16,
      .run = Run,
  };
  return kKernels;
}

const Kernels& Avx512VnniKernels() {
  static const Kernels kKernels = {
      .name = "avx512_vnni",
      .runs_on = RunsOnVnni,
      .bf16_dot = false,
      .quantize = Quantize,
      .to_bf16 = PlainKernels().to_bf16,
      .run = RunVnni,
  };
  return kKernels;
}

const Kernels& Avx512Bf16Kernels() {
  static constexpr Kernels kKernels = {
      .name = "avx512_bf16",
      .runs_on = RunsOnBf16,
      .bf16_dot = true,
      .quantize = Quantize,
      .to_bf16 = ToBf16,
      .run = RunBf16,
  };
  return kKernels;
}

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
