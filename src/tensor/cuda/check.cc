#include "tensor/cuda/check.h"

#include <string>

#include "base/error.h"

namespace hayate::cuda {

void Report(Device* device, cudaError_t error, const char* what, std::span<const int64_t> extents) {
  std::string shape;
  for (const int64_t extent : extents) {
    shape += (shape.empty() ? " [" : ", ") + std::to_string(extent);
  }
  if (!shape.empty()) shape += "]";
  device->Fail(Error(ErrorCode::kUnavailable, "{}: {}{}: {} ({})", device->name(), what, shape,
                     cudaGetErrorString(error), cudaGetErrorName(error)));
}

}  // namespace hayate::cuda
