#pragma once
// What a failed CUDA call does. Device errors are sticky and show at whatever call comes next, so a
// step does not branch on them: the device keeps the first one (Device::status) with the name of
// the call and its shapes, later calls run into the void, and exec looks once a step.
//
//   CUDA_CHECK(stream.device, cudaMemsetAsync(out, 0, bytes, …));
//   kernel<<<grid, block, 0, s>>>(…);
//   CUDA_CHECK_LAUNCH(stream, "rms_norm", rows, cols);

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>

#include "tensor/device.h"

namespace hayate::cuda {

// Keeps "rms_norm [64, 4096]: an illegal memory access …" with the device, if it is its first.
void Report(Device* device, cudaError_t error, const char* what, std::span<const int64_t> extents);

inline void Check(Device* device, cudaError_t error, const char* what) {
  if (error != cudaSuccess) Report(device, error, what, {});
}

template <typename... Extents>
void CheckLaunch(const Stream& stream, const char* kernel, Extents... extents) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  const std::array<int64_t, sizeof...(extents)> shape = {static_cast<int64_t>(extents)...};
  Report(stream.device, error, kernel, shape);
}

}  // namespace hayate::cuda

#define CUDA_CHECK(device, call) ::hayate::cuda::Check((device), (call), #call)
#define CUDA_CHECK_LAUNCH(stream, ...) ::hayate::cuda::CheckLaunch((stream), __VA_ARGS__)
