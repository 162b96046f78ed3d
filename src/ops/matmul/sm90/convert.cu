#include "ops/matmul/sm90/convert.h"

#include <algorithm>

#include "base/check.h"
#include "ops/matmul/sm90/stored_eight.cuh"
#include "ops/quantize/fp8_rows.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

// blockIdx.y strides over rows; a thread makes eight neighbours at a time.
template <DType kType, typename Out>
__global__ void __launch_bounds__(kThreads)
    ConvertKernel(Out* out, const uint8_t* from, int64_t row_bytes, int64_t rows, int64_t k,
                  CodeScales scales) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const uint8_t* source = from + row * row_bytes;
    const float* row_scales =
        scales.values == nullptr
            ? nullptr
            : scales.values + (scales.first_row + row) / scales.rows * scales.stride;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < k / 8;
         i += static_cast<int64_t>(gridDim.x) * kThreads) {
      Eight eight = LoadStored<kType>(source, i);
      if (row_scales != nullptr) {
#pragma unroll
        for (int j = 0; j < 8; ++j) eight.v[j] *= row_scales[(8 * i + j) / scales.cols];
      }
      StoreEight(out + row * k + 8 * i, eight);
    }
  }
}

// Rows whose length is no multiple of eight.
template <DType kType, typename Out>
__global__ void __launch_bounds__(kThreads)
    ConvertOddKernel(Out* out, const uint8_t* from, int64_t row_bytes, int64_t rows, int64_t k,
                     CodeScales scales) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < k;
         i += static_cast<int64_t>(gridDim.x) * kThreads) {
      float value = StoredElement<kType>(from + row * row_bytes, i);
      if (scales.values != nullptr) {
        value *=
            scales.values[(scales.first_row + row) / scales.rows * scales.stride + i / scales.cols];
      }
      FromFloat(value, out + row * k + i);
    }
  }
}

template <DType kType, typename Out>
void LaunchTo(const Stream& stream, const ConvertArgs& args) {
  const bool eights = args.k % 8 == 0;
  const int64_t work = eights ? args.k / 8 : args.k;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>((work + kThreads - 1) / kThreads, 64)),
                  static_cast<unsigned>(std::min<int64_t>(args.rows, 8192)));
  const auto* from = static_cast<const uint8_t*>(args.from);
  auto* out = static_cast<Out*>(args.out);
  cudaStream_t handle = static_cast<cudaStream_t>(stream.handle);
  if (eights) {
    ConvertKernel<kType><<<grid, kThreads, 0, handle>>>(out, from, RowBytes(kType, args.k),
                                                        args.rows, args.k, args.scales);
  } else if constexpr (!(kType >= DType::kQ4_0)) {
    ConvertOddKernel<kType><<<grid, kThreads, 0, handle>>>(out, from, RowBytes(kType, args.k),
                                                           args.rows, args.k, args.scales);
  }
}

template <DType kType>
void Launch(const Stream& stream, const ConvertArgs& args) {
  if (args.to == DType::kF32) return LaunchTo<kType, float>(stream, args);
  LaunchTo<kType, __nv_bfloat16>(stream, args);
}

// A thread makes eight neighbours, four bytes of codes.
template <typename Out>
__global__ void __launch_bounds__(kThreads)
    ConvertMxfp4Kernel(Out* out, const uint32_t* codes, const uint8_t* scales, int64_t eights) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < eights;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const uint32_t word = codes[i];
    const uint32_t exponent = scales[i / 4];
    // 2^(e − 127), halved because the codes are doubled.
    const float scale = (exponent == 0 ? 0x1p-127f : __uint_as_float(exponent << 23)) * 0.5f;
    Eight eight;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      eight.v[j] = static_cast<float>(TwiceE2M1(word >> (4 * j) & 0xF)) * scale;
    }
    StoreEight(out + 8 * i, eight);
  }
}

// A block per row, read twice.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(uint8_t* codes, float* scales, const uint8_t* from, int64_t row_bytes,
                   int64_t k) {
  __shared__ float warps[kThreads / 32];
  const int64_t row = blockIdx.x;
  const uint8_t* source = from + row * row_bytes;
  float highest = 0.0f;
  for (int64_t i = threadIdx.x; i < k; i += kThreads) {
    highest = fmaxf(highest, fabsf(StoredElement<kType>(source, i)));
  }
  highest = WarpMax(highest);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = highest;
  __syncthreads();
  highest = fmaxf(WarpMax(warps[threadIdx.x % (kThreads / 32)]), kFp8LeastHighest);
  const float inverse = kFp8Highest / highest;
  if (threadIdx.x == 0) scales[row] = highest * (1.0f / kFp8Highest);
  for (int64_t i = threadIdx.x; i < k; i += kThreads) {
    codes[row * k + i] =
        __nv_cvt_float_to_fp8(StoredElement<kType>(source, i) * inverse, __NV_SATFINITE, __NV_E4M3);
  }
}

template <DType kType>
void LaunchQuantize(const Stream& stream, const QuantizeWeightsArgs& args) {
  QuantizeKernel<kType>
      <<<static_cast<unsigned>(args.rows), kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(
          args.codes, args.scales, static_cast<const uint8_t*>(args.from), RowBytes(kType, args.k),
          args.k);
}

// Calls visit(DTypeTag<type>) for the types of StoredElement; false for any other.
template <typename Visit>
bool VisitType(DType type, const Visit& visit) {
  switch (type) {
    case DType::kF32:
      visit(DTypeTag<DType::kF32>{});
      return true;
    case DType::kF16:
      visit(DTypeTag<DType::kF16>{});
      return true;
    case DType::kBF16:
      visit(DTypeTag<DType::kBF16>{});
      return true;
    case DType::kF8E4M3:
      visit(DTypeTag<DType::kF8E4M3>{});
      return true;
    case DType::kF8E5M2:
      visit(DTypeTag<DType::kF8E5M2>{});
      return true;
    default:
      return VisitBlockType(type, visit);
  }
}

}  // namespace

bool SupportsConversion(DType type) {
  return VisitType(type, [](auto) {});
}

void ConvertWeights(Stream stream, const ConvertArgs& args) {
  if (args.rows == 0 || args.k == 0) return;
  const bool known =
      VisitType(args.type, [&](auto tag) { Launch<decltype(tag)::kValue>(stream, args); });
  CHECK(known) << Info(args.type).name;
  CUDA_CHECK_LAUNCH(stream, "convert_weights", args.rows, args.k);
}

void ConvertMxfp4(Stream stream, const ConvertMxfp4Args& args) {
  const int64_t eights = args.rows * args.k / 8;
  if (eights == 0) return;
  const auto grid =
      static_cast<unsigned>(std::min<int64_t>((eights + kThreads - 1) / kThreads, 65536));
  const auto* codes = reinterpret_cast<const uint32_t*>(args.codes);
  const auto* scales = reinterpret_cast<const uint8_t*>(args.scales);
  cudaStream_t handle = static_cast<cudaStream_t>(stream.handle);
  if (args.to == DType::kF32) {
    ConvertMxfp4Kernel<<<grid, kThreads, 0, handle>>>(static_cast<float*>(args.out), codes, scales,
                                                      eights);
  } else {
    ConvertMxfp4Kernel<<<grid, kThreads, 0, handle>>>(static_cast<__nv_bfloat16*>(args.out), codes,
                                                      scales, eights);
  }
  CUDA_CHECK_LAUNCH(stream, "convert_mxfp4", args.rows, args.k);
}

void QuantizeWeights(Stream stream, const QuantizeWeightsArgs& args) {
  if (args.rows == 0) return;
  switch (args.type) {
    case DType::kF32:
      LaunchQuantize<DType::kF32>(stream, args);
      break;
    case DType::kF16:
      LaunchQuantize<DType::kF16>(stream, args);
      break;
    default:
      CHECK(args.type == DType::kBF16) << Info(args.type).name;
      LaunchQuantize<DType::kBF16>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "quantize_weights", args.rows, args.k);
}

}  // namespace hayate::ops::sm90
