#pragma once
// A GPU, a queue on it and the memory that one operator's benchmark reads and writes.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "ops/matmul/matmul.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/workspace.h"

namespace hayate::bench {

// Failures are fatal: the cases are fixed, and sized for one H200.
class GpuOperands {
 public:
  GpuOperands();

  Stream stream() const { return stream_; }
  Workspace& workspace() { return *workspace_; }
  // For what the cases take from the workspace, before the first run.
  void ReserveWorkspace(int64_t bytes);

  std::byte* Take(int64_t bytes);
  std::byte* Zeros(int64_t bytes);
  // Normal numbers of type F32, BF16 or F8_E4M3: 16 MB of them repeated. Times do not depend on
  // values, as long as they are random.
  std::byte* Random(int64_t bytes, DType dtype);
  template <typename T>
  T* Place(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    std::byte* to = Take(static_cast<int64_t>(bytes));
    device_->Upload(to, values.data(), bytes);
    return reinterpret_cast<T*>(to);
  }
  // Random weights [n, k] as a checkpoint holds them, prepared for the device. F8_E4M3 has a scale
  // for every 128 × 128.
  const ops::PackedMatrix* Weights(DType dtype, int64_t n, int64_t k,
                                   ops::MatmulPrecision precision);
  // Once all is there.
  void FinishLoading() { device_->FinishLoading(); }

 private:
  std::unique_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<Buffer> buffers_;
  std::deque<ops::PackedMatrix> matrices_;  // stay where they are
};

}  // namespace hayate::bench
