#pragma once
// A device with a stream, and arrays on it, for tests of operators against their references. Arrays
// that an operator writes start out as NaN (or 0xFF bytes), so that what was not written shows.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/float16.h"

namespace hayate::ops::testing {

template <typename T>
struct DeviceArray {
  Buffer buffer;
  size_t count = 0;

  T* data() const { return reinterpret_cast<T*>(buffer.data()); }
  TensorView View(DType dtype, Shape shape) const { return {buffer.data(), dtype, shape}; }
};

// The elements of a tensor's bytes: F32, BF16, F16 or F8_E4M3.
inline std::vector<float> Floats(const std::vector<std::byte>& bytes, DType dtype) {
  const auto size = static_cast<size_t>(Info(dtype).block_bytes);
  std::vector<float> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * size, size);
    switch (dtype) {
      case DType::kBF16:
        values[i] = Bf16ToFloat(static_cast<uint16_t>(bits));
        break;
      case DType::kF16:
        values[i] = F16ToFloat(static_cast<uint16_t>(bits));
        break;
      case DType::kF8E4M3:
        values[i] = F8E4M3ToFloat(static_cast<uint8_t>(bits));
        break;
      default:
        std::memcpy(&values[i], &bits, sizeof(bits));
    }
  }
  return values;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeCudaDevice({.memory_fraction = 0.1});
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
    stream_ = device_->NewStream();
    done_ = device_->NewEvent();
  }

  template <typename T>
  DeviceArray<T> ToDevice(const std::vector<T>& values) {
    DeviceArray<T> array = Allocate<T>(values.size());
    if (!values.empty()) device_->Upload(array.data(), values.data(), values.size() * sizeof(T));
    device_->FinishLoading();
    return array;
  }
  // Every byte 0xFF.
  template <typename T>
  DeviceArray<T> Poisoned(size_t count) {
    std::vector<T> values(count);
    std::memset(static_cast<void*>(values.data()), 0xFF, count * sizeof(T));
    return ToDevice(values);
  }
  // Of a tensor of activations.
  DeviceArray<std::byte> ToDevice(const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(Info(dtype).block_bytes));
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kBF16) {
        const uint16_t bits = FloatToBf16(values[i]);
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
      } else {
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
      }
    }
    return ToDevice(bytes);
  }
  DeviceArray<std::byte> Poisoned(size_t count, DType dtype) {
    return Poisoned<std::byte>(count * static_cast<size_t>(Info(dtype).block_bytes));
  }

  // After everything queued.
  template <typename T>
  std::vector<T> ToHost(const DeviceArray<T>& array) {
    const size_t bytes = array.count * sizeof(T);
    Buffer pinned = Buffer::Allocate(*device_, bytes + 1, MemoryKind::kPinned).value();
    device_->Copy(stream_, pinned.data(), array.data(), bytes);
    Wait();
    std::vector<T> values(array.count);
    if (bytes > 0) std::memcpy(static_cast<void*>(values.data()), pinned.data(), bytes);
    return values;
  }
  std::vector<float> FloatsToHost(const DeviceArray<std::byte>& array, DType dtype) {
    return Floats(ToHost(array), dtype);
  }
  void Wait() {
    device_->Record(done_, stream_);
    device_->Synchronize(done_);
    ASSERT_TRUE(device_->status().ok()) << device_->status().message();
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  Event done_;

 private:
  template <typename T>
  DeviceArray<T> Allocate(size_t count) {
    // One byte more: an empty array has an address too.
    return {Buffer::Allocate(*device_, count * sizeof(T) + 1).value(), count};
  }
};

inline std::vector<float> RandomNormals(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = rng.NextNormal();
  return values;
}
// As an array of that type holds them.
inline std::vector<float> Rounded(std::vector<float> values, DType dtype) {
  if (dtype == DType::kBF16) {
    for (float& value : values) value = Bf16ToFloat(FloatToBf16(value));
  }
  return values;
}
// Relative error of storing a number.
inline double Epsilon(DType dtype) { return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-23; }

inline TensorView HostView(std::vector<float>& values, int64_t rows) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32,
          Shape{rows, static_cast<int64_t>(values.size()) / rows}};
}

}  // namespace hayate::ops::testing
