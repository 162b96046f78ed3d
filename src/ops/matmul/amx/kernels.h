#pragma once
// AMX int8 tiles for batches, AVX-512 with VNNI and BF16 for the rest (Sapphire Rapids and later).

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul::amx {

const Kernels& AmxKernels();

}  // namespace hayate::ops::matmul::amx
