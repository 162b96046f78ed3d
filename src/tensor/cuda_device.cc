#include "tensor/cuda/cuda_device.h"

#include <cstdlib>

#include "base/error.h"
#include "tensor/cuda_build.h"

namespace hayate {

Result<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  if constexpr (kCudaBuild) return cuda::MakeDevice(options);
  return Error(ErrorCode::kUnsupported,
               "this binary was built without CUDA; build it with -DHAYATE_CUDA=ON (./run --cuda) "
               "to use device {}, or run with --device cpu",
               options.index);
}

void PrepareToShareGpus() {
  constexpr int kKeep = 0;
  ::setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeep);
}

int CountCudaDevices() {
  if constexpr (kCudaBuild) return cuda::CountDevices();
  return 0;
}

}  // namespace hayate
