// Raw bytes through the request path without a socket: scanner, head, body decoding. Checks that
// the outcome does not depend on how the bytes are cut, and that what is accepted keeps its
// promises.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "http/detail/chunked.h"
#include "http/detail/head.h"

namespace hayate::http {
namespace {

struct Outcome {
  HeadScanner::Outcome scan = HeadScanner::Outcome::kNeedMore;
  size_t head_bytes = 0;
  ChunkedDecoder::State body_state = ChunkedDecoder::State::kNeedMore;
  std::string body;
  bool operator==(const Outcome&) const = default;
};

void CheckViews(std::string_view text, std::string_view view) {
  CHECK(view.data() >= text.data() && view.data() + view.size() <= text.data() + text.size());
}

void CheckHead(std::string_view text, const RequestHead& head) {
  CheckViews(text, head.method);
  CHECK(head.path == "*" || head.path[0] == '/');
  for (const Header& header : head.headers) {
    CheckViews(text, header.name);
    CHECK(!header.name.empty());
    CHECK(header.value.find_first_of("\r\n") == std::string_view::npos);
  }
  CHECK(head.framing != BodyFraming::kUntilClose);
  CHECK((head.framing == BodyFraming::kLength) == (head.content_length > 0));
}

Outcome Run(std::string_view text, size_t step) {
  Outcome out;
  HeadScanner scanner;
  size_t fed = 0;
  while (out.scan == HeadScanner::Outcome::kNeedMore && fed < text.size()) {
    fed = std::min(text.size(), fed + step);
    out.scan = scanner.Scan(text.substr(0, fed));
  }
  if (out.scan != HeadScanner::Outcome::kComplete) return out;
  out.head_bytes = scanner.head_bytes();
  // A copy of exact size, so that a read past the head is caught.
  const std::string head_text(text.substr(0, out.head_bytes));
  ResponseHead response;
  (void)ParseResponseHead(head_text, "GET", response);
  RequestHead head;
  if (ParseRequestHead(head_text, head)) return out;
  CheckHead(head_text, head);
  if (head.framing != BodyFraming::kChunked) return out;
  ChunkedDecoder decoder;
  std::string_view rest = text.substr(out.head_bytes);
  while (!rest.empty() && decoder.state() == ChunkedDecoder::State::kNeedMore) {
    std::string_view piece = rest.substr(0, step);
    const size_t offered = piece.size();
    out.body += decoder.Take(piece);
    rest.remove_prefix(offered - piece.size());
  }
  out.body_state = decoder.state();
  return out;
}

}  // namespace
}  // namespace hayate::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto whole = hayate::http::Run(text, size + 1);
  const auto pieces = hayate::http::Run(text, size % 7 + 1);
  CHECK(whole == pieces);
  return 0;
}
