#pragma once
// Bytes on their way to a socket. Empty it holds no memory worth naming, so idle connections are
// cheap.

#include <cstddef>
#include <string>
#include <string_view>

#include "http/detail/socket.h"

namespace hayate::http {

class OutputBuffer {
 public:
  // Where to append.
  std::string& bytes() { return bytes_; }
  size_t pending() const { return bytes_.size() - offset_; }

  enum class Outcome { kDrained, kBlocked, kFailed };
  // Writes until everything is out or the socket takes no more. `num_written` counts this call's
  // bytes.
  Outcome Flush(Socket& socket, size_t& num_written) {
    num_written = 0;
    while (pending() > 0) {
      const IoResult result = socket.Write(std::string_view(bytes_).substr(offset_));
      if (result.kind == IoResult::Kind::kOk) {
        offset_ += result.num_bytes;
        num_written += result.num_bytes;
      } else if (result.kind == IoResult::Kind::kWouldBlock) {
        Compact();
        return Outcome::kBlocked;
      } else {
        return Outcome::kFailed;
      }
    }
    offset_ = 0;
    if (bytes_.capacity() > kKeptBytes) {
      bytes_ = std::string();
    } else {
      bytes_.clear();
    }
    return Outcome::kDrained;
  }

  void Release() {
    bytes_ = std::string();
    offset_ = 0;
  }

 private:
  static constexpr size_t kKeptBytes = 8192;  // what a stream reuses from turn to turn

  // Moves the rest to the front only when that is no more than what went out already: linear in
  // all.
  void Compact() {
    if (offset_ < pending()) return;
    bytes_.erase(0, offset_);
    offset_ = 0;
  }

  std::string bytes_;
  size_t offset_ = 0;  // bytes before it are written
};

}  // namespace hayate::http
