#pragma once
// Builds safetensors files for tests.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "base/json_writer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace hayate::weights {

// A file from a header and data as they are, well-formed or not.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  file += data;
  return file;
}

class SafetensorsBuilder {
 public:
  SafetensorsBuilder() : writer_(header_) { writer_.BeginObject(); }

  void AddTensor(std::string_view name, DType dtype, const Shape& shape,
                 std::span<const std::byte> data) {
    writer_.Key(name);
    writer_.BeginObject();
    writer_.Field("dtype", Info(dtype).name);
    writer_.Key("shape");
    writer_.BeginArray();
    for (int axis = 0; axis < shape.rank(); ++axis) writer_.Int(shape[axis]);
    writer_.EndArray();
    writer_.Key("data_offsets");
    writer_.BeginArray();
    writer_.Uint(data_.size());
    data_.append(reinterpret_cast<const char*>(data.data()), data.size());
    writer_.Uint(data_.size());
    writer_.EndArray();
    writer_.EndObject();
  }
  void AddTensor(std::string_view name, const Shape& shape, const std::vector<float>& values) {
    AddTensor(name, DType::kF32, shape, std::as_bytes(std::span(values)));
  }
  // The header is padded with spaces to eight bytes, as the format's own library does.
  std::string Build() const {
    std::string header = header_ + "}";
    header.resize(AlignUp(header.size(), size_t{8}), ' ');
    return SafetensorsBytes(header, data_);
  }
  void Write(const std::filesystem::path& path) const {
    std::ofstream stream(path, std::ios::binary);
    stream << Build();
    CHECK(stream.good()) << path.string();
  }

 private:
  std::string header_;
  std::string data_;
  JsonWriter writer_;
};

}  // namespace hayate::weights
