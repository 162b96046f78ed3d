#pragma once
// The head of an HTTP/1 message (RFC 9112), read strictly: whatever two parsers could read
// differently (bare LF, folded lines, blanks before ':', two lengths, a length beside chunked) is
// refused, because a proxy in front that reads it the other way would let one request hide inside
// another.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace hayate::http {

// Finds the end of a head in bytes that arrive in pieces, looking at each byte once.
class HeadScanner {
 public:
  enum class Outcome { kNeedMore, kComplete, kMalformed };

  // `buffer` holds everything received since the last Reset and only grows between calls.
  // kMalformed: a line ended without CR.
  Outcome Scan(std::string_view buffer);
  // After kComplete: bytes up to and including the empty line.
  size_t head_bytes() const { return scanned_; }
  void Reset() { *this = HeadScanner(); }

 private:
  size_t scanned_ = 0;       // bytes looked at
  size_t line_begin_ = 0;    // where the current line starts
  bool in_message_ = false;  // a non-empty line was seen; empty lines before it are skipped
};

// Why a message was refused, as the status to answer with.
struct ParseError {
  int status = 0;           // 0: no error
  std::string_view reason;  // static text
  explicit operator bool() const { return status != 0; }
};

enum class BodyFraming {
  kNone,
  kLength,
  kChunked,
  kUntilClose,  // responses only
};

// Views into the parsed bytes.
struct RequestHead {
  std::string_view method;
  std::string_view path;   // starts with '/', or is "*"; undecoded, without the query
  std::string_view query;  // after '?', or empty
  std::vector<Header> headers;
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;  // for kLength
  bool http_1_0 = false;
  bool keep_alive = true;  // what the client asks for
  bool expects_continue = false;
};

struct ResponseHead {
  int status = 0;
  std::vector<Header> headers;
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
  bool keep_alive = true;
};

inline constexpr size_t kMaxHeaderFields = 100;

// `head` is what HeadScanner found complete. On an error the output holds nothing useful.
ParseError ParseRequestHead(std::string_view head, RequestHead& out);
// `request_method` decides whether the response has a body.
ParseError ParseResponseHead(std::string_view head, std::string_view request_method,
                             ResponseHead& out);

}  // namespace hayate::http
