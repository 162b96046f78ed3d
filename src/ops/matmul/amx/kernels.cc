#include "ops/matmul/amx/kernels.h"

#include "ops/matmul/amx/int8_tiles.h"
#include "ops/matmul/avx512/kernels.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::amx {
namespace {

bool RunsOnAmx(const CpuFeatures& features) { return features.amx_int8 && features.avx512_bf16; }

void Run(Layout layout, const KernelArgs& args) {
  TileUnit unit;
  const int64_t done = RunTiles(unit, layout, args);
  KernelArgs rest = args;
  rest.t -= done;
  rest.xq += done * args.k;
  rest.meta += done * (args.k / kBlock);
  rest.out += done * args.out_stride;
  avx512::Avx512Bf16Kernels().run(layout, rest);
}

}  // namespace

const Kernels& AmxKernels() {
  static const Kernels kKernels = {
      .name = "amx",
      .runs_on = RunsOnAmx,
      .bf16_dot = true,
      .quantize = avx512::Avx512Bf16Kernels().quantize,
      .to_bf16 = avx512::Avx512Bf16Kernels().to_bf16,
      .run = Run,
  };
  return kKernels;
}

}  // namespace hayate::ops::matmul::amx

#endif  // __x86_64__
