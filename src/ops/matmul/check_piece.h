#pragma once
// What every device asks of a piece of a weight matrix before it packs it.

#include <cstdint>

#include "base/status.h"
#include "ops/matmul/matmul.h"

namespace hayate::ops {

// kInvalidArgument unless the piece lies in its matrix, cuts no block of its dtype, has k columns,
// and its scales, if any, are as many as its blocks.
Status CheckPiece(const MatrixPiece& piece, int64_t k);

}  // namespace hayate::ops
