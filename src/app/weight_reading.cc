#include "app/weight_reading.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json_writer.h"
#include "weights/dequantize.h"

namespace hayate::app {

Result<std::string> WeightsJson(const weights::Checkpoint& checkpoint, const std::string& name,
                                int64_t max_rows) {
  if (!checkpoint.Has(name)) {
    return Error(ErrorCode::kNotFound, "the checkpoint has no tensor '{}'", name).WithParam("name");
  }
  ASSIGN_OR_RETURN(const ConstTensorView tensor, checkpoint.Tensor(name));
  const bool matrix = tensor.shape.rank() > 1;
  const int64_t cols = tensor.cols();
  const int64_t rows = matrix ? std::min(tensor.rows(), max_rows) : 1;
  const int64_t shown = matrix ? cols : std::min(cols, max_rows);
  if (rows * cols > kMaxListedWeights) {
    return InvalidField("truncate_size", "{} rows of {} values are more than {} values", rows, cols,
                        kMaxListedWeights);
  }
  std::string out;
  JsonWriter json(out);
  std::vector<float> values(static_cast<size_t>(cols));
  if (matrix) json.BeginArray();
  for (int64_t row = 0; row < rows; ++row) {
    weights::DequantizeRow(tensor.dtype, tensor.data + row * RowBytes(tensor.dtype, cols), cols,
                           values.data());
    json.BeginArray();
    for (int64_t i = 0; i < shown; ++i) json.Float(values[static_cast<size_t>(i)]);
    json.EndArray();
  }
  if (matrix) json.EndArray();
  return out;
}

}  // namespace hayate::app
