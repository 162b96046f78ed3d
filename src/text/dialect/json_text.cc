// JSON's spelling of strings, for the call readers.

#include <simdjson.h>

#include "text/dialect/call_reader.h"

namespace hayate::text {

std::string DecodeJsonString(std::string_view literal, bool& ok) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  std::string_view text;
  const simdjson::padded_string padded(literal);
  ok = parser.parse(padded).get(value) == simdjson::SUCCESS && value.get(text) == simdjson::SUCCESS;
  return ok ? std::string(text) : std::string();
}

void AppendEscaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
}

bool IsJsonValue(std::string_view text) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  const simdjson::padded_string padded(text);
  return parser.parse(padded).get(value) == simdjson::SUCCESS;
}

}  // namespace hayate::text
