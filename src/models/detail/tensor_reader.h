#pragma once
// Reads one rank's tensors of a checkpoint for preparation: vectors as f32, matrices with the
// scales that FP8 and packed FP4 checkpoints keep beside them.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/layers/head_shard.h"
#include "models/layers/linear.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

class TensorReader {
 public:
  // All three outlive the reader.
  TensorReader(const weights::Checkpoint& checkpoint, const LoadOptions& options, Fp8Block block)
      : checkpoint_(checkpoint), options_(options), block_(block) {}

  // A tensor of the given shape, which all ranks read in the same order. Values that are not finite
  // are found here: every tensor is looked through by one of the ranks.
  Result<ConstTensorView> Tensor(const std::string& name, const Shape& shape);

  // Elements of a vector of `size`, as f32; an empty range gives an empty buffer.
  Result<Buffer> Vector(const std::string& name, int64_t size, Range range);
  Result<Buffer> Vector(const std::string& name, int64_t size) {
    return Vector(name, size, {0, size});
  }
  // Parts of vectors, joined.
  struct VectorPart {
    std::string name;
    int64_t size = 0;
    Range range;
  };
  Result<Buffer> Vectors(const std::vector<VectorPart>& parts);

  // Rows and columns of "<name>.weight", which is [n, k], with its scales where it has some.
  struct Matrix {
    std::string name;
    int64_t n = 0, k = 0;
    Range rows, cols;
  };
  Result<ops::MatrixPiece> Piece(const Matrix& matrix);
  // The matrices one below the other, in the precision that the model was asked for; nothing where
  // the rank's part is empty.
  Result<std::optional<ops::PackedMatrix>> Pack(const std::vector<Matrix>& matrices);
  Result<std::optional<ops::PackedMatrix>> Pack(const std::vector<Matrix>& matrices,
                                                ops::MatmulPrecision precision);

  // A whole matrix.
  Result<ops::PackedMatrix> PackWhole(const std::string& name, int64_t n, int64_t k,
                                      ops::MatmulPrecision precision);
  // The same for matrices that no other rank reads, and that are not empty.
  Result<ops::PackedMatrix> PackOwn(const std::vector<Matrix>& matrices);

  bool Has(const std::string& name) const { return checkpoint_.Has(name); }
  const weights::Checkpoint& checkpoint() const { return checkpoint_; }
  const LoadOptions& options() const { return options_; }

 private:
  // Whether other ranks read the tensor too.
  enum class Readers : uint8_t { kAll, kThisOne };
  Result<ConstTensorView> Read(const std::string& name, const Shape& shape, Readers readers);
  Result<ops::MatrixPiece> Piece(const Matrix& matrix, Readers readers);
  Result<ops::PackedMatrix> Pack(const std::vector<Matrix>& matrices,
                                 const std::vector<ops::MatrixPiece>& pieces,
                                 ops::MatmulPrecision precision) const;

  const weights::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  const Fp8Block block_;
  int num_tensors_ = 0;
};

// Columns of a tensor that cannot be parted when it is cut for ranks.
int64_t ColumnUnit(DType dtype);

}  // namespace hayate::models
