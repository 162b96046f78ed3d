#pragma once
// Random weights of true shapes: what a model costs can be measured without its checkpoint. A value
// depends only on (seed, tensor name, position), never on the order in which tensors are asked for.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor_view.h"
#include "weights/detail/repeated_memory.h"

namespace hayate::weights {

struct DummyTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

// Fills `out` with values of mean 0 and standard deviation 1/√K, K the row length, so activations
// keep their size through the layers. Plain floats are near normal (a sum of uniform bytes); block
// types get uniform codes under constant scales; integers small values, I32 and I64 (ids) none
// below 0. A vector with "norm" in its name and a float tensor whose name ends in "scale", "scales"
// or "scale_inv" are all ones; U8 scales of MXFP4 are 2⁻⁷.
void FillDummy(TensorView out, std::string_view name, uint64_t seed);

// Owns dummy tensors, each made when first asked for. Large ones are one piece of random values,
// shared by all tensors of that type and row length, mapped over and over: hundreds of gigabytes
// cost address space, not memory or time. Thread-safe.
class DummyStore {
 public:
  explicit DummyStore(uint64_t seed) : seed_(seed) {}
  ConstTensorView Get(std::string_view name, DType dtype, const Shape& shape);

 private:
  const RepeatedMemory& Piece(DType dtype, int64_t cols);

  const uint64_t seed_;
  std::mutex mutex_;
  std::map<std::pair<DType, int64_t>, RepeatedMemory> pieces_;  // by type and row length
  std::map<std::string, std::unique_ptr<std::byte[]>, std::less<>> small_;
  std::map<std::string, RepeatedMemory::View, std::less<>> large_;
};

}  // namespace hayate::weights
