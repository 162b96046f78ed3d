#pragma once
// Reads little-endian fields one after another from bytes that may end anywhere.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/status.h"

namespace hayate::weights::detail {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t size() const { return bytes_.size(); }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  // `what` names the field in the error.
  template <typename T>
  Result<T> Read(std::string_view what) {
    if (remaining() < sizeof(T)) return Truncated(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  // A u64 length, then that many bytes; the view is into the bytes read.
  Result<std::string_view> ReadString(std::string_view what, uint64_t max_bytes) {
    const uint64_t begin = offset_;
    ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (length > max_bytes) {
      return Error(ErrorCode::kDataLoss, "offset {}: {} of {} bytes, at most {} are read", begin,
                   what, length, max_bytes);
    }
    if (length > remaining()) return Truncated(what, length);
    const auto* text = reinterpret_cast<const char*>(bytes_.data() + offset_);
    offset_ += length;
    return std::string_view(text, length);
  }

 private:
  Status Truncated(std::string_view what, uint64_t wanted) const {
    return Error(ErrorCode::kDataLoss, "offset {}: the file ends inside {} ({} of {} bytes left)",
                 offset_, what, remaining(), wanted);
  }

  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace hayate::weights::detail
