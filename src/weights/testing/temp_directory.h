#pragma once
// A directory for one test's files, removed with the object.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/check.h"

namespace hayate::weights {

class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hayate-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(std::string_view name, std::string_view text) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream stream(path, std::ios::binary);
    stream << text;
    CHECK(stream.good()) << path.string();
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace hayate::weights
