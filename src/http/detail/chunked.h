#pragma once
// The chunked transfer coding (RFC 9112 §7.1).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hayate::http {

// Decodes incrementally without holding body bytes. Chunk extensions and trailers are read and
// dropped.
class ChunkedDecoder {
 public:
  enum class State { kNeedMore, kDone, kMalformed };

  // Takes a piece from the front of `in`: removes what it consumed and returns the body bytes among
  // it, a view into `in`. Call again while `in` is not empty and state() is kNeedMore.
  std::string_view Take(std::string_view& in);
  State state() const { return state_; }

 private:
  // Bounds size lines with their extensions, and the trailers together.
  static constexpr size_t kMaxLineBytes = 256;
  static constexpr size_t kMaxTrailerBytes = 8192;

  enum class Phase { kSize, kExtension, kData, kDataEnd, kTrailer };
  void TakeLineByte(char c);
  void TakeLineEnd();
  void BeginLine(Phase phase);

  State state_ = State::kNeedMore;
  Phase phase_ = Phase::kSize;
  uint64_t remaining_ = 0;
  size_t line_bytes_ = 0;
  size_t trailer_bytes_ = 0;
  bool after_cr_ = false;
};

// Appends `bytes` as one chunk; nothing when empty, since an empty chunk would end the body.
void AppendChunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace hayate::http
