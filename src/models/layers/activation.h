#pragma once
// The number format of activations: everything that passes between operators but the residual
// stream, the logits and the norms, which are f32 everywhere.

#include "ops/matmul/matmul.h"
#include "tensor/device.h"

namespace hayate::models {

inline DType ActivationType(const Device& device, ops::MatmulPrecision precision) {
  const bool halved =
      device.kind() == DeviceKind::kCuda && precision != ops::MatmulPrecision::kExact;
  return halved ? DType::kBF16 : DType::kF32;
}

}  // namespace hayate::models
