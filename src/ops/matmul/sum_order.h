#pragma once
// The order in which the products of a row are summed.

#include <cstdint>

namespace hayate::ops {

enum class SumOrder : uint8_t {
  kFastest,
  kFixed,  // the same for every number of rows: a row's result does not depend on its batch mates
};

}  // namespace hayate::ops
