#include "ops/matmul/matmul.h"

#include <algorithm>

#include "base/align.h"
#include "ops/matmul/amx/kernels.h"
#include "ops/matmul/avx2/kernels.h"
#include "ops/matmul/avx512/kernels.h"
#include "ops/matmul/f8_kernels.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/sm90/matrix.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace matmul {
namespace {

// Tokens of one pass over the weights: enough that streaming the weights again is small beside the
// arithmetic, few enough that the quantised activations stay in the second-level cache.
int64_t TokensPerPass(int64_t k) {
  constexpr int64_t kActivationBytes = int64_t{384} << 10;
  return std::max<int64_t>(64, AlignDown<int64_t>(kActivationBytes / std::max<int64_t>(k, 1), 8));
}

const Kernels& BestKernels() {
  static const Kernels& best = *AvailableKernels(DetectCpuFeatures()).front();
  return best;
}

struct Needs {
  bool int8 = false;
  bool bf16 = false;
};
Needs NeedsOf(const PackedMatrix& w) {
  Needs needs;
  for (const PackedPart& part : w.parts) {
    const Layout layout = static_cast<Layout>(part.layout);
    const Codes codes = InfoOf(layout).codes;
    needs.int8 |= codes != Codes::kFloat && codes != Codes::kF8;
    needs.bf16 |= layout == Layout::kBf16Dot;
  }
  return needs;
}

// One pass: rows [begin, begin + t) of x.
void RunPass(const Kernels& kernels, Workspace& workspace, const MatmulArgs& args, int64_t begin,
             int64_t t) {
  const PackedMatrix& w = *args.w;
  const Needs needs = NeedsOf(w);
  KernelArgs kernel{};
  kernel.k = w.k;
  kernel.t = t;
  kernel.x = args.x.as<float>() + begin * w.k;
  kernel.out_stride = args.out_row_stride == 0 ? w.n : args.out_row_stride;
  if (needs.int8) {
    int8_t* xq = workspace.TakeArray<int8_t>(t * w.k);
    BlockMeta* meta = workspace.TakeArray<BlockMeta>(t * w.k / kBlock);
    kernels.quantize(kernel.x, t, w.k, xq, meta);
    kernel.xq = xq;
    kernel.meta = meta;
  }
  if (needs.bf16) {
    uint16_t* x_bf16 = workspace.TakeArray<uint16_t>(t * AlignUp<int64_t>(w.k, 2));
    kernels.to_bf16(kernel.x, t, w.k, x_bf16);
    kernel.x_bf16 = x_bf16;
  }
  int64_t row = 0;
  for (const PackedPart& part : w.parts) {
    kernel.tiles = w.storage.data() + part.offset;
    kernel.n = part.n;
    kernel.out = args.out.as<float>() + begin * kernel.out_stride + row;
    kernel.bias = args.bias == nullptr ? nullptr : args.bias + row;
    if (static_cast<Layout>(part.layout) == Layout::kF8) {
      RunF8(kernel);
    } else {
      kernels.run(static_cast<Layout>(part.layout), kernel);
    }
    row += part.n;
  }
}

}  // namespace

std::span<const Kernels* const> AllKernels() {
  static const Kernels* const kAll[] = {
#if defined(__x86_64__)
    &amx::AmxKernels(),
    &avx512::Avx512Bf16Kernels(),
    &avx512::Avx512VnniKernels(),
    &avx512::Avx512Kernels(),
    &avx2::Avx2Kernels(),
#endif
    &PlainKernels(),
  };
  return kAll;
}

std::vector<const Kernels*> AvailableKernels(const CpuFeatures& features) {
  std::vector<const Kernels*> found;
  for (const Kernels* kernels : AllKernels()) {
    if (kernels->runs_on(features)) found.push_back(kernels);
  }
  return found;
}

void MatmulWith(const Kernels& kernels, Workspace& workspace, const MatmulArgs& args) {
  const int64_t t = args.x.rows();
  DCHECK(!args.x_norm.pending());
  DCHECK_EQ(args.x.cols(), args.w->k);
  DCHECK_EQ(args.out.cols(), args.w->n);
  DCHECK_EQ(args.out.rows(), t);
  const int64_t step = TokensPerPass(args.w->k);
  for (int64_t begin = 0; begin < t; begin += step) {
    const size_t mark = workspace.mark();
    RunPass(kernels, workspace, args, begin, std::min(step, t - begin));
    workspace.ResetTo(mark);
  }
}

}  // namespace matmul

Result<PackedMatrix> PackMatrix(Device& device, std::span<const MatrixPiece> pieces,
                                MatmulPrecision precision) {
  if constexpr (kCudaBuild) {
    if (device.kind() == DeviceKind::kCuda) return sm90::PackMatrix(device, pieces, precision);
  }
  return matmul::PackMatrixFor(matmul::BestKernels(), device, pieces, precision);
}

void Matmul(Stream stream, Workspace& workspace, const MatmulArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::Matmul(stream, workspace, args);
  }
  matmul::MatmulWith(matmul::BestKernels(), workspace, args);
}

int64_t MatmulWorkspaceBytes(int64_t t, int64_t k) {
  const int64_t tokens = std::min(t, matmul::TokensPerPass(k));
  const int64_t columns = AlignUp<int64_t>(k, matmul::kBlock);
  // int8 codes, their block data (32 bytes for 32 columns) and bf16, each aligned by the workspace.
  const int64_t cpu = tokens * columns * 4 + 3 * static_cast<int64_t>(Workspace::kAlignment);
  if constexpr (kCudaBuild) return std::max(cpu, sm90::MatmulWorkspaceBytes(t, k));
  return cpu;
}

std::optional<Fp8Scaling> WantedFp8(const PackedMatrix& w) {
  if constexpr (kCudaBuild) {
    return sm90::Fp8ScalingOf(w);
  }
  return std::nullopt;
}

Fp8Rows TakeFp8Rows(Workspace& workspace, Fp8Scaling scaling, int64_t t, int64_t k) {
  const bool per_group = scaling == Fp8Scaling::kPerGroup;
  const int64_t stride = AlignUp<int64_t>(t, sm90::kXScaleRows);
  const int64_t groups = per_group ? CeilDiv<int64_t>(k, kFp8GroupColumns) : 1;
  return {.codes = workspace.TakeArray<uint8_t>(t * k),
          .scales = workspace.TakeArray<float>(stride * groups),
          .scaling = scaling,
          .row_stride = 1,
          .group_stride = per_group ? stride : 0};
}

int64_t Fp8RowsBytes(Fp8Scaling scaling, int64_t t, int64_t k) {
  const int64_t groups =
      scaling == Fp8Scaling::kPerGroup ? CeilDiv<int64_t>(k, kFp8GroupColumns) : 1;
  const int64_t scales =
      AlignUp<int64_t>(t, sm90::kXScaleRows) * groups * static_cast<int64_t>(sizeof(float));
  return t * k + scales + 2 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops
