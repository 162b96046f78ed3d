#include "ops/zero/zero.h"

#include <cstring>

#include "ops/zero/cuda/zero.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void Zero(Stream stream, TensorView out) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return cuda::Zero(stream, out);
  }
  if (out.num_bytes() > 0) std::memset(out.data, 0, static_cast<size_t>(out.num_bytes()));
}

}  // namespace hayate::ops
