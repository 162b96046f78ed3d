#pragma once
// Builds GGUF files for tests: well-formed ones through the setters, broken ones by editing the
// bytes.
//   GgufBuilder gguf; gguf.Set("general.architecture", "llama"); gguf.AddTensor(…); gguf.Build();

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace hayate::weights {

// The type number of a dtype in a GGUF tensor info.
inline uint32_t GgufTensorType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kI8:
      return 24;
    case DType::kI16:
      return 25;
    case DType::kI32:
      return 26;
    case DType::kI64:
      return 27;
    case DType::kBF16:
      return 30;
    case DType::kMXFP4:
      return 39;
    default:
      CHECK(false) << "GGUF has no " << Info(dtype).name;
      return 0;
  }
}

class GgufBuilder {
 public:
  explicit GgufBuilder(uint32_t version = 3) : version_(version) {}

  void Set(std::string_view key, std::string_view text) { Key(key, 8), PutString(values_, text); }
  void Set(std::string_view key, const char* text) { Set(key, std::string_view(text)); }
  void Set(std::string_view key, const std::string& text) { Set(key, std::string_view(text)); }
  // Numbers and bool keep their C++ type.
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Set(std::string_view key, T value) { Key(key, ValueType<T>()), Put(values_, value); }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Set(std::string_view key, const std::vector<T>& items) {
    ArrayHeader(key, ValueType<T>(), items.size());
    for (const T item : items) Put(values_, item);
  }
  void Set(std::string_view key, const std::vector<std::string>& items) {
    ArrayHeader(key, 8, items.size());
    for (const std::string& item : items) PutString(values_, item);
  }
  // A value of a type that the setters do not make: `value` follows the type number as it is.
  void SetRaw(std::string_view key, uint32_t type, std::string_view value) {
    Key(key, type), values_ += value;
  }

  // `shape` outermost first. The data is padded to the alignment.
  void AddTensor(std::string_view name, DType dtype, const Shape& shape,
                 std::span<const std::byte> data) {
    std::vector<uint64_t> extents;  // innermost first
    for (int axis = shape.rank(); axis-- > 0;)
      extents.push_back(static_cast<uint64_t>(shape[axis]));
    AddRawTensor(name, GgufTensorType(dtype), extents, data_.size());
    data_.append(reinterpret_cast<const char*>(data.data()), data.size());
    data_.resize(AlignUp(data_.size(), alignment_));
  }
  void AddTensor(std::string_view name, const Shape& shape, const std::vector<float>& values) {
    AddTensor(name, DType::kF32, shape, std::as_bytes(std::span(values)));
  }
  // Only the tensor info, as given.
  void AddRawTensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
                    uint64_t offset) {
    PutString(infos_, name);
    Put(infos_, static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) Put(infos_, extent);
    Put(infos_, type);
    Put(infos_, offset);
    ++num_tensors_;
  }

  // Writes general.alignment; call it before the first tensor.
  void SetAlignment(uint32_t alignment) {
    Set("general.alignment", alignment);
    alignment_ = alignment;
  }

  // Offset of the data section in Build()'s result.
  size_t data_begin() const {
    return AlignUp(size_t{24} + values_.size() + infos_.size(), alignment_);
  }
  std::string Build() const {
    std::string file = "GGUF";
    Put(file, version_);
    Put(file, num_tensors_);
    Put(file, num_values_);
    file += values_ + infos_;
    file.resize(data_begin());
    return file + data_;
  }
  void Write(const std::filesystem::path& path) const {
    std::ofstream stream(path, std::ios::binary);
    stream << Build();
    CHECK(stream.good()) << path.string();
  }

 private:
  template <typename T>
  static constexpr uint32_t ValueType() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? 6 : 12;
    constexpr uint32_t kUnsigned = std::is_unsigned_v<T> ? 0 : 1;
    if constexpr (sizeof(T) == 8) return 10 + kUnsigned;
    return (sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : 4) + kUnsigned;
  }
  template <typename T>
  static void Put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void PutString(std::string& to, std::string_view text) {
    Put(to, uint64_t{text.size()});
    to += text;
  }
  void Key(std::string_view key, uint32_t type) {
    PutString(values_, key);
    Put(values_, type);
    ++num_values_;
  }
  void ArrayHeader(std::string_view key, uint32_t item_type, uint64_t count) {
    Key(key, 9);
    Put(values_, item_type);
    Put(values_, count);
  }

  uint32_t version_;
  size_t alignment_ = 32;
  uint64_t num_tensors_ = 0;
  uint64_t num_values_ = 0;
  std::string values_;
  std::string infos_;
  std::string data_;
};

}  // namespace hayate::weights
