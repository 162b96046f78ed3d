#pragma once
// Whether this binary holds the CUDA device, and whether a stream belongs to one. Operators branch
// with `if constexpr (kCudaBuild)`, so a build without CUDA needs no definition of what lies in the
// folders cuda/ and sm90/.

#include "tensor/device.h"

namespace hayate {

#ifdef HAYATE_CUDA
inline constexpr bool kCudaBuild = true;
#else
inline constexpr bool kCudaBuild = false;
#endif

inline bool OnCuda(const Stream& stream) {
  return kCudaBuild && stream.device != nullptr && stream.device->kind() == DeviceKind::kCuda;
}

}  // namespace hayate
