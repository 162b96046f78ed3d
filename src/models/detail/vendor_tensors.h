#pragma once
// Reads tensors of DeepSeek's own checkpoint layout: "<name>.weight" in BF16, F32, E4M3 with a
// "<name>.scale" per tile, or E2M1 packed two to a byte with a "<name>.scale" per 32 columns.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/layers/head_shard.h"
#include "models/layers/linear.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

class VendorTensors {
 public:
  // `tile`: rows and columns that share a scale of an E4M3 matrix. All three outlive the reader.
  VendorTensors(const weights::Checkpoint& checkpoint, const LoadOptions& options, int32_t tile)
      : checkpoint_(checkpoint), options_(options), tile_(tile) {}

  // A matrix [n, k] and what of it this rank takes.
  struct Part {
    std::string name;  // without ".weight"
    int64_t n = 0;
    Range rows;
  };

  // A whole tensor of this shape. Values that are not finite are found here: every tensor is looked
  // through by one of the ranks.
  Result<ConstTensorView> Tensor(const std::string& name, const Shape& shape);
  // A tensor of any float type as f32.
  Result<Buffer> Floats(const std::string& name, const Shape& shape);
  Result<Buffer> Floats(const std::string& name, const Shape& shape, Range elements);
  // The rows of all parts, one after the other; columns [columns.begin, columns.end) of k.
  Result<Linear> Matrix(const std::vector<Part>& parts, int64_t k, Range columns,
                        ops::MatmulPrecision precision);
  // The same where the rank's part is not empty.
  Result<ops::PackedMatrix> Packed(const std::vector<Part>& parts, int64_t k, Range columns,
                                   ops::MatmulPrecision precision);
  // A whole matrix.
  Result<Linear> Matrix(const std::string& name, int64_t n, int64_t k,
                        ops::MatmulPrecision precision);
  // The same without the packing: weights with their scales.
  Result<ops::MatrixPiece> Piece(const Part& part, int64_t k, Range columns);

  // Tells options.progress that `done` of `total` equal parts of this rank's share are read.
  void Report(int done, int total) const;

  bool Has(const std::string& name) const { return checkpoint_.Has(name); }
  const weights::Checkpoint& checkpoint() const { return checkpoint_; }
  const LoadOptions& options() const { return options_; }

 private:
  const weights::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  const int32_t tile_;
  int num_tensors_ = 0;
};

}  // namespace hayate::models
