#pragma once
// A projection's prepared weights with its bias, or nothing where a rank's part is empty.

#include <optional>

#include "models/forward_batch.h"
#include "ops/matmul/matmul.h"
#include "tensor/buffer.h"

namespace hayate::models {

struct Linear {
  std::optional<ops::PackedMatrix> weights;  // [N, K]; none: this rank's N or K is 0
  Buffer bias;                               // [N] f32, or empty

  int64_t n() const { return weights ? weights->n : 0; }
  int64_t k() const { return weights ? weights->k : 0; }
  int64_t bytes() const {
    return static_cast<int64_t>((weights ? weights->storage.size() : 0) + bias.size());
  }
  const float* bias_data() const { return reinterpret_cast<const float*>(bias.data()); }
  std::optional<ops::Fp8Scaling> WantedFp8() const {
    return weights ? ops::WantedFp8(*weights) : std::nullopt;
  }
};

// What a projection multiplies. Where it wants fp8 rows (ops::WantedFp8) and the operator before
// made them, `fp8` has them and the values need no data.
struct LinearInput {
  ConstTensorView x;  // [T, K]
  ops::Fp8Rows fp8;

  LinearInput(const ConstTensorView& values, const ops::Fp8Rows& rows = {})
      : x(values), fp8(rows) {}
  LinearInput(const TensorView& values) : x(values) {}
};

// The call of a projection that has weights, without bias or with.
ops::MatmulArgs ProductOf(const Linear& linear, const LinearInput& input, TensorView out);

// out [T, N] = x [T, K] · Wᵀ + bias. Without weights, out is set to zero: the rank adds nothing to
// the sum of all.
void Apply(Stream stream, Workspace& workspace, const Linear& linear, const LinearInput& input,
           TensorView out);

}  // namespace hayate::models
