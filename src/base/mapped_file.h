#pragma once
// A read-only memory-mapped file. Move-only; the mapping ends with the object.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.h"

namespace hayate {

class MappedFile {
 public:
  // Fails with kNotFound or kIo, naming the path. An empty file gives an empty span.
  static Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel to read the range ahead, or that it will not be used again.
  void WillNeed(size_t offset, size_t length) const;
  void DontNeed(size_t offset, size_t length) const;

 private:
  MappedFile(const std::byte* data, size_t size, std::string path)
      : data_(data), size_(size), path_(std::move(path)) {}

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// Reads a whole file of at most `max_bytes`; larger ones are kPayloadTooLarge.
Result<std::string> ReadFile(const std::filesystem::path& path, size_t max_bytes);

}  // namespace hayate
