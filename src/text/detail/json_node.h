#pragma once
// A JSON value that knows its place in the file, so that every error can name it.

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hayate::text {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element value, std::string place)
      : value_(value), place_(std::move(place)) {}

  // "pre_tokenizer.pretokenizers[1]".
  const std::string& place() const { return place_; }
  simdjson::dom::element value() const { return value_; }

  // A member of an object; none when it is absent or null.
  std::optional<JsonNode> Member(std::string_view key) const;
  // The same, but absence is an error.
  Result<JsonNode> Required(std::string_view key) const;

  Result<std::vector<JsonNode>> Elements() const;
  Result<std::string_view> AsString() const;
  Result<int64_t> AsInt() const;

  Result<std::string_view> String(std::string_view key) const;
  // `fallback` when absent or null.
  Result<std::string_view> StringOr(std::string_view key, std::string_view fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;

  // "place: message".
  Status Invalid(std::string_view message) const;
  Status Unsupported(std::string_view message) const;

 private:
  simdjson::dom::element value_;
  std::string place_;
};

}  // namespace hayate::text
