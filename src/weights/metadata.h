#pragma once
// What a checkpoint says about itself: a flat map from key to typed value. GGUF metadata is that
// already; a JSON document becomes it by joining nested keys with dots ("rope_scaling.factor").
//
// Strings are views: into the mapped file for GGUF, into the map's own storage for JSON. They live
// as long as the Checkpoint that the map came from. Immutable after loading; any thread may read.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace hayate::weights {

// Values without a typed form here.
enum class Untyped : uint8_t { kNull, kEmptyArray, kNestedArray };

using MetadataValue =
    std::variant<Untyped, bool, int64_t, double, std::string_view, std::vector<bool>,
                 std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;

class Metadata {
 public:
  using Map = std::map<std::string, MetadataValue, std::less<>>;

  // Parses a JSON object of at most kMaxJsonBytes. An array of scalars of one kind becomes an array
  // value; any other array's items get the keys "name.0", "name.1", …
  static Result<Metadata> FromJson(std::string_view json);
  static constexpr size_t kMaxJsonBytes = size_t{64} << 20;

  // Typed access. A missing key is kNotFound, a value of another kind or out of range kDataLoss;
  // the message names the key. Integers read as floats where they are asked for as floats, and
  // floats with an integral value as integers.
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  // A scalar reads as an array of one, an empty array as one of any kind.
  Result<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  Result<std::vector<double>> GetFloatArray(std::string_view key) const;
  Result<std::span<const std::string_view>> GetStringArray(std::string_view key) const;

  // The same with a value for a key that is missing or null; a wrong kind is still an error.
  Result<int64_t> GetInt(std::string_view key, int64_t fallback) const;
  Result<double> GetFloat(std::string_view key, double fallback) const;
  Result<bool> GetBool(std::string_view key, bool fallback) const;
  Result<std::string_view> GetString(std::string_view key, std::string_view fallback) const;

  // Null values count as absent.
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  const Map& values() const { return values_; }

  // For loaders: false when the key is there already.
  bool Insert(std::string key, MetadataValue value) {
    return values_.emplace(std::move(key), std::move(value)).second;
  }
  // Keeps a copy of `text` as long as the map and returns a view of it.
  std::string_view Own(std::string_view text) { return strings_.emplace_back(text); }

 private:
  const MetadataValue* Find(std::string_view key) const;

  Map values_;
  std::deque<std::string> strings_;  // a deque: its elements never move
};

// A value in about `max_chars` characters, for people: `"llama"`, `2048`, `[49152 items] "a", "b",
// …`.
std::string Summarize(const MetadataValue& value, size_t max_chars);

}  // namespace hayate::weights
