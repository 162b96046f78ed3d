#pragma once
// Paged rows and steps of a test in the memory of a device.

#include "ops/sparse_attention/testing/paged_rows.h"
#include "ops/testing/gpu.h"

namespace hayate::ops::testing {

class LatentGpuTest : public GpuTest {
 protected:
  // Keeps what it uploads until the test ends.
  template <typename T>
  T* Placed(const std::vector<T>& values) {
    placed_.push_back(std::move(ToDevice(values).buffer));
    return reinterpret_cast<T*>(placed_.back().data());
  }
  LatentLayerView Placed(const PagedRows& rows) {
    LatentLayerView view = rows.view();
    view.base = Placed(rows.bytes());
    return view;
  }
  AttentionRows Placed(const AttentionRows& rows, const TestStep& step,
                       const std::vector<int32_t>& tables) {
    AttentionRows placed = rows;
    placed.q_begin = Placed(step.q_begin);
    placed.kv_len = Placed(step.kv_len);
    placed.page_table = Placed(tables);
    return placed;
  }
  ConstTensorView Placed(const std::vector<float>& values, DType dtype, const Shape& shape) {
    placed_.push_back(std::move(ToDevice(values, dtype).buffer));
    return TensorView{placed_.back().data(), dtype, shape};
  }

  // Gives back in the order that the device asks for.
  void TearDown() override {
    while (!placed_.empty()) placed_.pop_back();
  }

 private:
  std::vector<Buffer> placed_;
};

}  // namespace hayate::ops::testing
