#pragma once
// The tensors that a checkpoint of a config holds, for checkpoints without weights of their own.

#include <vector>

#include "models/config.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Names as config.json's format has them; matrices of `dtype`, or as the config's quantisation
// says, vectors in f32. Rows must be multiples of the dtype's block: kInvalidArgument names the
// tensor.
Result<std::vector<weights::DummyTensor>> ListTensors(const ModelConfig& config, DType dtype);
// The same for the config of any family, read from a checkpoint opened for its config alone.
Result<std::vector<weights::DummyTensor>> ListTensors(const weights::Checkpoint& checkpoint,
                                                      DType dtype);

}  // namespace hayate::models
