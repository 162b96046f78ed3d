#include "weights/metadata.h"

#include <simdjson.h>

#include <cmath>
#include <utility>

#include "base/error.h"

namespace hayate::weights {
namespace {

namespace dom = simdjson::dom;

// Documents deeper than this are refused by the parser itself.
constexpr size_t kMaxJsonDepth = 64;
// Joined keys repeat their prefix in every leaf below it; these two keep a small document from
// becoming a large map.
constexpr size_t kMaxJsonKeyBytes = 512;
constexpr size_t kMaxJsonValues = 1'000'000;

std::string_view KindName(const MetadataValue& value) {
  static constexpr std::string_view kUntyped[] = {"null", "an empty array", "a nested array"};
  static constexpr std::string_view kNames[] = {"",
                                                "a boolean",
                                                "an integer",
                                                "a float",
                                                "a string",
                                                "an array of booleans",
                                                "an array of integers",
                                                "an array of floats",
                                                "an array of strings"};
  if (const auto* untyped = std::get_if<Untyped>(&value)) {
    return kUntyped[static_cast<size_t>(*untyped)];
  }
  return kNames[value.index()];
}

bool Is(const MetadataValue& value, Untyped kind) {
  const auto* untyped = std::get_if<Untyped>(&value);
  return untyped != nullptr && *untyped == kind;
}

Status Missing(std::string_view key) {
  return Error(ErrorCode::kNotFound, "metadata has no key '{}'", key);
}

Status WrongKind(std::string_view key, std::string_view wanted, const MetadataValue& value) {
  return Error(ErrorCode::kDataLoss, "metadata key '{}' is {}, expected {}", key, KindName(value),
               wanted);
}

std::optional<int64_t> AsInt(const MetadataValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) {
    // 2^53 bounds the integers that a double holds exactly.
    if (std::abs(*real) <= 0x1p53 && std::trunc(*real) == *real) return static_cast<int64_t>(*real);
  }
  return std::nullopt;
}

std::optional<double> AsFloat(const MetadataValue& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

// Turns a JSON document into the flat map.
class Flattener {
 public:
  explicit Flattener(Metadata& metadata) : metadata_(metadata) {}

  Status AddObject(const std::string& prefix, dom::object object) {
    for (const auto [name, value] : object) {
      std::string key = prefix.empty() ? std::string(name) : prefix + "." + std::string(name);
      RETURN_IF_ERROR(Add(std::move(key), value));
    }
    return OkStatus();
  }

 private:
  Status Add(std::string key, dom::element element) {
    if (key.size() > kMaxJsonKeyBytes) {
      return Error(ErrorCode::kPayloadTooLarge, "the key '{}…' is longer than {} bytes",
                   key.substr(0, 40), kMaxJsonKeyBytes);
    }
    switch (element.type()) {
      case dom::element_type::OBJECT:
        return AddObject(key, dom::object(element));
      case dom::element_type::ARRAY:
        return AddArray(std::move(key), dom::array(element));
      default:
        return Insert(std::move(key), Scalar(element));
    }
  }

  MetadataValue Scalar(dom::element element) {
    switch (element.type()) {
      case dom::element_type::BOOL:
        return bool(element);
      case dom::element_type::INT64:
        return int64_t(element);
      case dom::element_type::UINT64:
        return static_cast<double>(uint64_t(element));
      case dom::element_type::DOUBLE:
        return double(element);
      case dom::element_type::STRING:
        return metadata_.Own(std::string_view(element));
      default:
        return Untyped::kNull;
    }
  }

  Status AddArray(std::string key, dom::array array) {
    size_t booleans = 0, integers = 0, numbers = 0, strings = 0, count = 0;
    for (const dom::element item : array) {
      ++count;
      booleans += item.is_bool();
      integers += item.type() == dom::element_type::INT64;
      numbers += item.is_number();
      strings += item.is_string();
    }
    if (count == 0) return Insert(std::move(key), Untyped::kEmptyArray);
    if (booleans == count) return Insert(std::move(key), Collect<bool>(array));
    if (integers == count) return Insert(std::move(key), Collect<int64_t>(array));
    if (numbers == count) return Insert(std::move(key), Collect<double>(array));
    if (strings == count) return Insert(std::move(key), Collect<std::string_view>(array));
    size_t index = 0;
    for (const dom::element item : array) {
      RETURN_IF_ERROR(Add(key + "." + std::to_string(index++), item));
    }
    return OkStatus();
  }

  template <typename T>
  std::vector<T> Collect(dom::array array) {
    std::vector<T> items;
    items.reserve(array.size());
    for (const dom::element item : array) {
      if constexpr (std::is_same_v<T, double>) {
        items.push_back(*AsFloat(Scalar(item)));
      } else {
        items.push_back(std::get<T>(Scalar(item)));
      }
    }
    return items;
  }

  Status Insert(std::string key, MetadataValue value) {
    if (metadata_.values().size() >= kMaxJsonValues) {
      return Error(ErrorCode::kPayloadTooLarge, "more than {} values", kMaxJsonValues);
    }
    if (metadata_.Insert(key, std::move(value))) return OkStatus();
    return Error(ErrorCode::kDataLoss, "the key '{}' appears twice", key);
  }

  Metadata& metadata_;
};

template <typename T>
Result<T> OrFallback(Result<T> result, T fallback) {
  if (!result.ok() && result.status().code() == ErrorCode::kNotFound) return fallback;
  return result;
}

}  // namespace

Result<Metadata> Metadata::FromJson(std::string_view json) {
  if (json.size() > kMaxJsonBytes) {
    return Error(ErrorCode::kPayloadTooLarge, "{} bytes of JSON, at most {} are read", json.size(),
                 kMaxJsonBytes);
  }
  dom::parser parser;
  dom::element root;
  simdjson::error_code code = parser.allocate(json.size() + 1, kMaxJsonDepth);
  if (code == simdjson::SUCCESS) code = parser.parse(json.data(), json.size()).get(root);
  if (code != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "not valid JSON: {}", simdjson::error_message(code));
  }
  if (!root.is_object()) return Error(ErrorCode::kDataLoss, "the JSON is not an object");
  Metadata metadata;
  RETURN_IF_ERROR(Flattener(metadata).AddObject("", dom::object(root)));
  return metadata;
}

const MetadataValue* Metadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  return Is(found->second, Untyped::kNull) ? nullptr : &found->second;
}

Result<int64_t> Metadata::GetInt(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto integer = AsInt(*value)) return *integer;
  return WrongKind(key, "an integer", *value);
}

Result<double> Metadata::GetFloat(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto real = AsFloat(*value)) return *real;
  return WrongKind(key, "a number", *value);
}

Result<bool> Metadata::GetBool(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* boolean = std::get_if<bool>(value)) return *boolean;
  return WrongKind(key, "a boolean", *value);
}

Result<std::string_view> Metadata::GetString(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* text = std::get_if<std::string_view>(value)) return *text;
  return WrongKind(key, "a string", *value);
}

Result<std::vector<int64_t>> Metadata::GetIntArray(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (Is(*value, Untyped::kEmptyArray)) return std::vector<int64_t>{};
  if (const auto* items = std::get_if<std::vector<int64_t>>(value)) return *items;
  if (const auto integer = AsInt(*value)) return std::vector<int64_t>{*integer};
  return WrongKind(key, "an array of integers", *value);
}

Result<std::vector<double>> Metadata::GetFloatArray(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (Is(*value, Untyped::kEmptyArray)) return std::vector<double>{};
  if (const auto* items = std::get_if<std::vector<double>>(value)) return *items;
  if (const auto* items = std::get_if<std::vector<int64_t>>(value)) {
    return std::vector<double>(items->begin(), items->end());
  }
  if (const auto real = AsFloat(*value)) return std::vector<double>{*real};
  return WrongKind(key, "an array of numbers", *value);
}

Result<std::span<const std::string_view>> Metadata::GetStringArray(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (Is(*value, Untyped::kEmptyArray)) return std::span<const std::string_view>{};
  if (const auto* items = std::get_if<std::vector<std::string_view>>(value)) {
    return std::span<const std::string_view>(*items);
  }
  if (const auto* text = std::get_if<std::string_view>(value)) {
    return std::span<const std::string_view>(text, 1);
  }
  return WrongKind(key, "an array of strings", *value);
}

Result<int64_t> Metadata::GetInt(std::string_view key, int64_t fallback) const {
  return OrFallback(GetInt(key), fallback);
}
Result<double> Metadata::GetFloat(std::string_view key, double fallback) const {
  return OrFallback(GetFloat(key), fallback);
}
Result<bool> Metadata::GetBool(std::string_view key, bool fallback) const {
  return OrFallback(GetBool(key), fallback);
}
Result<std::string_view> Metadata::GetString(std::string_view key,
                                             std::string_view fallback) const {
  return OrFallback(GetString(key), fallback);
}

}  // namespace hayate::weights
