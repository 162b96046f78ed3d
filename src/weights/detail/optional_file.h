#pragma once
// A file that a model directory may lack.

#include <filesystem>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"

namespace hayate::weights::detail {

// Its text; empty when there is no such file.
inline Result<std::string> ReadOptionalFile(const std::filesystem::path& path, size_t max_bytes) {
  Result<std::string> text = ReadFile(path, max_bytes);
  if (!text.ok() && text.status().code() == ErrorCode::kNotFound) return std::string();
  return text;
}

}  // namespace hayate::weights::detail
