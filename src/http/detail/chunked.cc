#include "http/detail/chunked.h"

#include <algorithm>
#include <charconv>

namespace hayate::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsControl(char c) { return (static_cast<uint8_t>(c) < 0x20 && c != '\t') || c == 0x7F; }

}  // namespace

std::string_view ChunkedDecoder::Take(std::string_view& in) {
  while (!in.empty() && state_ == State::kNeedMore) {
    if (phase_ == Phase::kData) {
      const auto count = static_cast<size_t>(std::min<uint64_t>(remaining_, in.size()));
      const std::string_view data = in.substr(0, count);
      in.remove_prefix(count);
      remaining_ -= count;
      if (remaining_ == 0) BeginLine(Phase::kDataEnd);
      return data;
    }
    const char c = in.front();
    in.remove_prefix(1);
    if (after_cr_) {
      after_cr_ = false;
      if (c != '\n') {
        state_ = State::kMalformed;
      } else {
        TakeLineEnd();
      }
    } else if (c == '\r') {
      after_cr_ = true;
    } else {
      TakeLineByte(c);
    }
  }
  return {};
}

void ChunkedDecoder::BeginLine(Phase phase) {
  phase_ = phase;
  line_bytes_ = 0;
}

// A byte inside a line: of the size, of its extension, or of a trailer.
void ChunkedDecoder::TakeLineByte(char c) {
  ++line_bytes_;
  bool valid = line_bytes_ <= kMaxLineBytes && !IsControl(c);
  switch (phase_) {
    case Phase::kSize: {
      const int digit = HexDigit(c);
      if (digit >= 0) {
        valid = valid && remaining_ < (uint64_t{1} << 56);
        remaining_ = remaining_ * 16 + static_cast<uint64_t>(digit);
      } else {
        valid = valid && line_bytes_ > 1 && c == ';';
        phase_ = Phase::kExtension;
      }
      break;
    }
    case Phase::kExtension:
      break;
    case Phase::kTrailer:
      valid = ++trailer_bytes_ <= kMaxTrailerBytes && !IsControl(c);
      break;
    case Phase::kDataEnd:
    case Phase::kData:
      valid = false;
      break;
  }
  if (!valid) state_ = State::kMalformed;
}

void ChunkedDecoder::TakeLineEnd() {
  switch (phase_) {
    case Phase::kSize:
    case Phase::kExtension:
      if (line_bytes_ == 0) {
        state_ = State::kMalformed;
      } else {
        BeginLine(remaining_ == 0 ? Phase::kTrailer : Phase::kData);
      }
      break;
    case Phase::kDataEnd:
      BeginLine(Phase::kSize);
      break;
    case Phase::kTrailer:
      if (line_bytes_ == 0) state_ = State::kDone;
      BeginLine(Phase::kTrailer);
      break;
    case Phase::kData:
      state_ = State::kMalformed;
      break;
  }
}

void AppendChunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  char size[16];
  const auto [end, error] = std::to_chars(size, size + sizeof(size), bytes.size(), 16);
  out.append(size, end);
  out.append("\r\n").append(bytes).append("\r\n");
}

}  // namespace hayate::http
