// silu(gate) · up, with the fp8 quantisation after it. A thread computes chunks of 8 columns in
// registers. Grid: [T, pieces of a row]; one piece where a scale needs the whole row. Traffic,
// bf16: 6 bytes an element of the result (5 + 1/32 into fp8 alone).

#include "ops/activation/sm90/swiglu.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/activation/sm90/silu.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/quantize/sm90/quantize_row.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
constexpr int kMaxChunks = 4;

template <typename T, int kChunks, int kThreadBound>
__global__ void __launch_bounds__(kThreadBound)
    InRegisters(T* out, const T* gate_up, int columns, const __grid_constant__ Fp8Rows fp8) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t row = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y * blockDim.x) * kChunks;
  const T* gate_row = gate_up + row * 2 * columns;
  Eight values[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = first + static_cast<int>(i * blockDim.x + threadIdx.x);
    if (chunk >= columns / 8) continue;
    values[i] = LoadEight(gate_row + chunk * 8);
    const Eight up = LoadEight(gate_row + columns + chunk * 8);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i].v[j] = Silu(values[i].v[j], T()) * up.v[j];
    if (out != nullptr) StoreEight(out + row * columns + chunk * 8, values[i]);
  }
  if (fp8.codes != nullptr) QuantizeRow<kChunks>(fp8, row, columns, first, values);
}

// Any width and alignment, no fp8.
template <typename T>
__global__ void __launch_bounds__(kThreads) RowByElement(T* out, const T* gate_up, int columns) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t row = blockIdx.x;
  const T* gate = gate_up + row * 2 * columns;
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    const float product = Silu(ToFloat(gate[i]), T()) * ToFloat(gate[columns + i]);
    FromFloat(product, out + row * columns + i);
  }
}

template <typename T>
void Launch(const Stream& stream, const SwiGluArgs& args) {
  const int columns = static_cast<int>(args.gate_up.cols() / 2), chunks = columns / 8;
  T* out = reinterpret_cast<T*>(args.out.data);
  const T* gate_up = reinterpret_cast<const T*>(args.gate_up.data);
  const unsigned rows = static_cast<unsigned>(args.gate_up.rows());
  const auto bits = reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(gate_up);
  if (columns % 8 != 0 || bits % 16 != 0) {
    CHECK(!args.fp8.wanted()) << "fp8 rows of " << columns << " columns";
    return LaunchDependent(stream, RowByElement<T>, rows, kThreads, 0, out, gate_up, columns);
  }
  CheckFp8Rows(args.fp8, columns);
  if (args.fp8.wanted() && args.fp8.scaling == Fp8Scaling::kPerToken) {
    const int threads = static_cast<int>(AlignUp(CeilDiv(chunks, kMaxChunks), 32));
    CHECK_LE(threads, kMaxThreads) << columns << " columns";
    return LaunchDependent(stream, InRegisters<T, kMaxChunks, kMaxThreads>, rows, threads, 0, out,
                           gate_up, columns, args.fp8);
  }
  const dim3 grid(rows, static_cast<unsigned>(CeilDiv(chunks, kThreads)));
  LaunchDependent(stream, InRegisters<T, 1, kThreads>, grid, kThreads, 0, out, gate_up, columns,
                  args.fp8);
}

}  // namespace

void SwiGlu(Stream stream, const SwiGluArgs& args) {
  DCHECK(args.out.data == nullptr || args.out.dtype == args.gate_up.dtype);
  if (args.gate_up.rows() == 0) return;
  if (args.gate_up.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.gate_up.dtype == DType::kF32) << Info(args.gate_up.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "swiglu", args.gate_up.rows(), args.gate_up.cols());
}

}  // namespace hayate::ops::sm90
