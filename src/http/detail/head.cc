#include "http/detail/head.h"

#include <array>
#include <charconv>
#include <cstring>

namespace hayate::http {
namespace {

constexpr std::array<bool, 256> MakeTokenTable() {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<uint8_t>(c)] = true;
  return table;
}
constexpr std::array<bool, 256> kIsToken = MakeTokenTable();

bool IsToken(std::string_view text) {
  for (char c : text) {
    if (!kIsToken[static_cast<uint8_t>(c)]) return false;
  }
  return !text.empty();
}

// Field values: visible ASCII, blanks and bytes ≥ 0x80.
bool IsFieldValue(std::string_view text) {
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if ((byte < 0x20 && byte != '\t') || byte == 0x7F) return false;
  }
  return true;
}

bool IsVisibleAscii(std::string_view text) {
  for (char c : text) {
    if (c <= 0x20 || c >= 0x7F) return false;
  }
  return !text.empty();
}

std::string_view TrimBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Takes the next line, without its CRLF. HeadScanner made sure that there is one.
std::string_view TakeLine(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end - 1);
  rest.remove_prefix(end + 1);
  return line;
}

// What the fields say about framing and the connection, gathered in one pass.
struct FieldFacts {
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool close = false;
  bool keep_alive = false;
  bool expects_continue = false;
  int num_hosts = 0;
};

ParseError ReadContentLength(std::string_view value, FieldFacts& facts) {
  if (facts.content_length) return {400, "more than one Content-Length"};
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
  if (error != std::errc() || end != value.data() + value.size()) {
    return {400, "Content-Length is not a number"};
  }
  facts.content_length = length;
  return {};
}

void ReadConnection(std::string_view value, FieldFacts& facts) {
  while (!value.empty()) {
    const std::string_view item = value.substr(0, value.find(','));
    value.remove_prefix(std::min(item.size() + 1, value.size()));
    const std::string_view option = TrimBlanks(item);
    if (EqualsIgnoreCase(option, "close")) facts.close = true;
    if (EqualsIgnoreCase(option, "keep-alive")) facts.keep_alive = true;
  }
}

ParseError ReadFact(const Header& field, FieldFacts& facts) {
  if (EqualsIgnoreCase(field.name, "content-length")) return ReadContentLength(field.value, facts);
  if (EqualsIgnoreCase(field.name, "transfer-encoding")) {
    if (facts.chunked) return {400, "more than one Transfer-Encoding"};
    if (!EqualsIgnoreCase(field.value, "chunked")) {
      return {501, "the only Transfer-Encoding understood is chunked"};
    }
    facts.chunked = true;
  } else if (EqualsIgnoreCase(field.name, "connection")) {
    ReadConnection(field.value, facts);
  } else if (EqualsIgnoreCase(field.name, "expect")) {
    if (!EqualsIgnoreCase(field.value, "100-continue")) return {417, "unknown expectation"};
    facts.expects_continue = true;
  } else if (EqualsIgnoreCase(field.name, "host")) {
    ++facts.num_hosts;
  }
  return {};
}

ParseError ParseFields(std::string_view rest, std::vector<Header>& headers, FieldFacts& facts) {
  headers.clear();
  headers.reserve(16);  // what clients send fits
  for (std::string_view line = TakeLine(rest); !line.empty(); line = TakeLine(rest)) {
    if (line[0] == ' ' || line[0] == '\t') return {400, "folded header line"};
    if (headers.size() == kMaxHeaderFields) return {431, "too many header fields"};
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return {400, "header line without ':'"};
    const Header field{line.substr(0, colon), TrimBlanks(line.substr(colon + 1))};
    if (!IsToken(field.name)) return {400, "malformed header name"};
    if (!IsFieldValue(field.value)) return {400, "control character in a header value"};
    if (const ParseError error = ReadFact(field, facts)) return error;
    headers.push_back(field);
  }
  if (facts.chunked && facts.content_length) {
    return {400, "Content-Length beside Transfer-Encoding"};
  }
  return {};
}

// "HTTP/1.1" or "HTTP/1.0".
ParseError ParseVersion(std::string_view text, bool& http_1_0) {
  if (text == "HTTP/1.1" || text == "HTTP/1.0") {
    http_1_0 = text.back() == '0';
    return {};
  }
  if (text.size() == 8 && text.starts_with("HTTP/")) return {505, "HTTP/1.1 is spoken here"};
  return {400, "malformed request line"};
}

ParseError ParseTarget(std::string_view target, RequestHead& out) {
  if (!IsVisibleAscii(target)) return {400, "malformed request target"};
  // The absolute form, sent to proxies, must be accepted by servers too (RFC 9112 §3.2.2).
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() ||
        !EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) {
      continue;
    }
    const size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  const size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (out.path.empty()) out.path = "/";
  out.query = question == std::string_view::npos ? "" : target.substr(question + 1);
  if (out.path[0] != '/' && out.path != "*") return {400, "request target is not a path"};
  return {};
}

}  // namespace

HeadScanner::Outcome HeadScanner::Scan(std::string_view buffer) {
  while (scanned_ < buffer.size()) {
    const void* found = std::memchr(buffer.data() + scanned_, '\n', buffer.size() - scanned_);
    if (found == nullptr) {
      scanned_ = buffer.size();
      return Outcome::kNeedMore;
    }
    const size_t newline = static_cast<const char*>(found) - buffer.data();
    scanned_ = newline + 1;
    if (newline == line_begin_ || buffer[newline - 1] != '\r') return Outcome::kMalformed;
    const bool empty_line = newline - line_begin_ == 1;
    line_begin_ = scanned_;
    if (empty_line && in_message_) return Outcome::kComplete;
    if (!empty_line) in_message_ = true;
  }
  return Outcome::kNeedMore;
}

ParseError ParseRequestHead(std::string_view head, RequestHead& out) {
  std::string_view line = TakeLine(head);
  while (line.empty()) line = TakeLine(head);  // RFC 9112 §2.2: clients may send CRLF after a body
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end) {
    return {400, "malformed request line"};
  }
  out.method = line.substr(0, method_end);
  if (!IsToken(out.method)) return {400, "malformed method"};
  if (const ParseError error = ParseVersion(line.substr(target_end + 1), out.http_1_0)) {
    return error;
  }
  const auto target = line.substr(method_end + 1, target_end - method_end - 1);
  if (const ParseError error = ParseTarget(target, out)) return error;

  FieldFacts facts;
  if (const ParseError error = ParseFields(head, out.headers, facts)) return error;
  if (facts.num_hosts > 1 || (facts.num_hosts == 0 && !out.http_1_0)) {
    return {400, "exactly one Host header is needed"};
  }
  if (facts.chunked && out.http_1_0) return {400, "Transfer-Encoding in HTTP/1.0"};
  out.keep_alive = !facts.close && (!out.http_1_0 || facts.keep_alive);
  out.expects_continue = facts.expects_continue && !out.http_1_0;
  out.content_length = facts.content_length.value_or(0);
  out.framing = facts.chunked            ? BodyFraming::kChunked
                : out.content_length > 0 ? BodyFraming::kLength
                                         : BodyFraming::kNone;
  return {};
}

ParseError ParseResponseHead(std::string_view head, std::string_view request_method,
                             ResponseHead& out) {
  std::string_view line = TakeLine(head);
  while (line.empty()) line = TakeLine(head);
  // "HTTP/1.1 200 OK"; the reason, and the blank before it, may be missing.
  bool http_1_0 = false;
  if (line.size() < 12 || line[8] != ' ' || ParseVersion(line.substr(0, 8), http_1_0) ||
      (line.size() > 12 && line[12] != ' ')) {
    return {502, "malformed status line"};
  }
  const auto [end, error] = std::from_chars(line.data() + 9, line.data() + 12, out.status);
  if (error != std::errc() || end != line.data() + 12 || out.status < 100) {
    return {502, "malformed status line"};
  }
  FieldFacts facts;
  if (const ParseError field_error = ParseFields(head, out.headers, facts)) {
    return {502, field_error.reason};
  }
  // RFC 9112 §6.1: whoever relayed it may have read another end.
  if (facts.chunked && http_1_0) return {502, "Transfer-Encoding in HTTP/1.0"};
  out.keep_alive = !facts.close && (!http_1_0 || facts.keep_alive);
  out.content_length = facts.content_length.value_or(0);
  const bool no_body =
      request_method == "HEAD" || out.status < 200 || out.status == 204 || out.status == 304;
  if (no_body) {
    out.framing = BodyFraming::kNone;
  } else if (facts.chunked) {
    out.framing = BodyFraming::kChunked;
  } else if (facts.content_length) {
    out.framing = out.content_length > 0 ? BodyFraming::kLength : BodyFraming::kNone;
  } else {
    out.framing = BodyFraming::kUntilClose;
    out.keep_alive = false;
  }
  return {};
}

}  // namespace hayate::http
