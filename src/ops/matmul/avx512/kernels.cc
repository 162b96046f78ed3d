#include "ops/matmul/avx512/kernels.h"

#include <utility>

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {
namespace {

template <Layout kLayout>
void Run(const KernelArgs& args) {
  if constexpr (InfoOf(kLayout).codes == Codes::kFloat) {
    RunFloat(kLayout, args);
  } else {
    RunInt8(kLayout, args);
  }
}

template <int... kIndices>
constexpr std::array<void (*)(const KernelArgs&), kNumLayouts> RunTable(
    std::integer_sequence<int, kIndices...>) {
  return {&Run<static_cast<Layout>(kIndices)>...};
}

}  // namespace

const Kernels& Avx512Kernels() {
  static constexpr Kernels kKernels = {
      .name = "avx512",
      .bf16_dot = true,
      .quantize = Quantize,
      .to_bf16 = ToBf16,
      .run = RunTable(std::make_integer_sequence<int, kNumLayouts>()),
  };
  return kKernels;
}

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
