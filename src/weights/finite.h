#pragma once
// Finds values that would poison a forward pass: NaN and infinity in plain floats, and in the
// scales of block types (their codes are always finite).

#include <cstdint>
#include <optional>

#include "tensor/tensor_view.h"

namespace hayate::weights {

// The byte offset inside the tensor of the first value or scale that is not finite. For block types
// it reads only the scales. Integers are always finite.
std::optional<int64_t> FindNonFinite(const ConstTensorView& tensor);

}  // namespace hayate::weights
