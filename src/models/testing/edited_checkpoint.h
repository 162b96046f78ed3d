#pragma once
// A copy of a small checkpoint with parts of it changed, for tests that show what a test sees.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "weights/checkpoint.h"

namespace hayate::models::testing {

class EditedCheckpoint {
 public:
  // Copies `source` (config.json and model.safetensors) to a new folder `folder`.
  EditedCheckpoint(const std::filesystem::path& source, std::filesystem::path folder)
      : folder_(std::move(folder)) {
    config = nlohmann::json::parse(std::ifstream(source / "config.json"));
    std::ifstream file(source / "model.safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    header_ = nlohmann::json::parse(bytes_.substr(8, header_bytes));
    data_begin_ = 8 + header_bytes;
  }

  nlohmann::json config;

  // Calls edit(data, bytes) for every tensor whose name ends so; there must be one.
  void Edit(std::string_view name_end, const std::function<void(std::byte*, size_t)>& edit) {
    int num_edited = 0;
    for (const auto& [name, info] : header_.items()) {
      if (!name.ends_with(name_end)) continue;
      const auto begin = info["data_offsets"][0].get<size_t>();
      const auto end = info["data_offsets"][1].get<size_t>();
      edit(reinterpret_cast<std::byte*>(bytes_.data() + data_begin_ + begin), end - begin);
      ++num_edited;
    }
    CHECK_GT(num_edited, 0) << name_end;
  }

  weights::Checkpoint Open() const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << config.dump();
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << bytes_;
    return weights::Checkpoint::Open(folder_).value();
  }

 private:
  std::filesystem::path folder_;
  std::string bytes_;
  nlohmann::json header_;
  size_t data_begin_ = 0;
};

}  // namespace hayate::models::testing
