#pragma once
// Where the default model lies, for tests and benches that run the real one.

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace hayate::models::testing {

// $HAYATE_MODEL (./test sets it), else the file that tools/fetch_model.sh leaves in its cache; none
// when there is no such file.
inline std::optional<std::filesystem::path> DefaultModelPath() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::filesystem::path path = variable("HAYATE_MODEL");
  if (path.empty()) {
    std::filesystem::path cache = variable("HAYATE_CACHE");
    if (cache.empty() && !variable("XDG_CACHE_HOME").empty()) {
      cache = variable("XDG_CACHE_HOME") / "hayate";
    }
    if (cache.empty()) cache = variable("HOME") / ".cache/hayate";
    path = cache / "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  return path;
}

}  // namespace hayate::models::testing
