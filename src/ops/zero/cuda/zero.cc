#include "ops/zero/cuda/zero.h"

#include <cuda_runtime_api.h>

#include "tensor/cuda/check.h"

namespace hayate::ops::cuda {

void Zero(Stream stream, TensorView out) {
  CUDA_CHECK(stream.device, cudaMemsetAsync(out.data, 0, static_cast<size_t>(out.num_bytes()),
                                            static_cast<cudaStream_t>(stream.handle)));
}

}  // namespace hayate::ops::cuda
