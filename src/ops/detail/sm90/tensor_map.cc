#include "ops/detail/sm90/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/error.h"

namespace hayate::ops::sm90 {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Through the runtime, so that the binary starts on machines without a driver.
EncodeTiled FindEncodeTiled() {
  constexpr unsigned int kSinceCuda = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             kSinceCuda, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(function);
}

CUtensorMapDataType DataTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

}  // namespace

Status MakeTensorMap(const TensorMapArgs& args, CUtensorMap* map) {
  static const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) {
    return Error(ErrorCode::kUnsupported, "the CUDA driver has no cuTensorMapEncodeTiled");
  }
  constexpr size_t kMaxRank = 5;
  const size_t rank = args.extents.size();
  if (rank == 0 || rank > kMaxRank || args.box.size() != rank || args.strides.size() + 1 != rank) {
    return Error(ErrorCode::kInvalidArgument, "a tensor map of {} extents, {} strides, {} box axes",
                 rank, args.strides.size(), args.box.size());
  }
  cuuint64_t extents[kMaxRank], strides[kMaxRank];
  cuuint32_t box[kMaxRank], steps[kMaxRank];
  for (size_t i = 0; i < rank; ++i) {
    extents[i] = static_cast<cuuint64_t>(args.extents[i]);
    box[i] = static_cast<cuuint32_t>(args.box[i]);
    steps[i] = 1;
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(args.strides[i - 1]);
  }
  const int64_t row_bytes = args.box[0] * Info(args.dtype).block_bytes;
  const CUtensorMapSwizzle swizzle = !args.swizzle     ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_128B;
  const CUresult result = encode(
      map, DataTypeOf(args.dtype), static_cast<cuuint32_t>(rank), const_cast<void*>(args.data),
      extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Error(ErrorCode::kInvalidArgument,
                 "cuTensorMapEncodeTiled refused {} at {} with extents [{}], box [{}] (error {})",
                 Info(args.dtype).name, args.data,
                 fmt::join(args.extents.begin(), args.extents.end(), ", "),
                 fmt::join(args.box.begin(), args.box.end(), ", "), static_cast<int>(result));
  }
  return OkStatus();
}

Status MakeMatrixMap(const void* data, DType dtype, int64_t rows, int64_t columns,
                     int64_t row_bytes, int64_t box_rows, CUtensorMap* map) {
  constexpr int64_t kSwizzleBytes = 128;
  const int64_t extents[] = {columns, rows};
  const int64_t box[] = {kSwizzleBytes / Info(dtype).block_bytes, box_rows};
  return MakeTensorMap(
      {.data = data, .dtype = dtype, .extents = extents, .strides = {&row_bytes, 1}, .box = box},
      map);
}

}  // namespace hayate::ops::sm90
