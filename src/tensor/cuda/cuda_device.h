#pragma once
// An NVIDIA GPU behind Device. Only tensor/cuda_device.cc includes this; everyone else calls
// MakeCudaDevice.

#include <memory>

#include "base/status.h"
#include "tensor/device.h"

namespace hayate::cuda {

Result<std::unique_ptr<Device>> MakeDevice(const CudaDeviceOptions& options);
int CountDevices();

}  // namespace hayate::cuda
