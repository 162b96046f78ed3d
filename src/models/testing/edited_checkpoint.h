#pragma once
// A copy of a small checkpoint with parts of it changed, for tests that show what a test sees.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "weights/checkpoint.h"

namespace hayate::models::testing {

class EditedCheckpoint {
 public:
  struct Tensor {
    std::string dtype;  // as safetensors spells it
    std::vector<int64_t> shape;
    std::string bytes;
  };

  // Copies `source` (config.json and model.safetensors) to a new folder `folder`.
  EditedCheckpoint(const std::filesystem::path& source, std::filesystem::path folder)
      : folder_(std::move(folder)) {
    config = nlohmann::json::parse(std::ifstream(source / "config.json"));
    std::ifstream file(source / "model.safetensors", std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data(), sizeof(header_bytes));
    const auto header = nlohmann::json::parse(whole.substr(8, header_bytes));
    for (const auto& [name, info] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = info["data_offsets"][0].get<size_t>();
      const auto end = info["data_offsets"][1].get<size_t>();
      tensors[name] = {info["dtype"], info["shape"],
                       whole.substr(8 + header_bytes + begin, end - begin)};
    }
  }

  nlohmann::json config;
  std::map<std::string, Tensor> tensors;

  // Calls edit(data, bytes) for every tensor whose name ends so; there must be one.
  void Edit(std::string_view name_end, const std::function<void(std::byte*, size_t)>& edit) {
    int num_edited = 0;
    for (auto& [name, tensor] : tensors) {
      if (!name.ends_with(name_end)) continue;
      edit(reinterpret_cast<std::byte*>(tensor.bytes.data()), tensor.bytes.size());
      ++num_edited;
    }
    CHECK_GT(num_edited, 0) << name_end;
  }

  weights::Checkpoint Open() const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << config.dump();
    auto header = nlohmann::json::object();
    uint64_t offset = 0;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {offset, offset + tensor.bytes.size()}}};
      offset += tensor.bytes.size();
    }
    const std::string text = header.dump();
    const uint64_t header_bytes = text.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << text;
    for (const auto& [name, tensor] : tensors) file << tensor.bytes;
    file.close();
    return weights::Checkpoint::Open(folder_).value();
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace hayate::models::testing
