#include "api/field_reader.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hayate::api {

using simdjson::dom::element;
using simdjson::dom::element_type;

std::optional<element> FieldReader::Any(std::string_view name) {
  seen_.push_back(name);
  element value;
  if (object_[name].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

void FieldReader::Fail(std::string_view name, std::string_view why) {
  if (!status_.ok()) return;
  status_ = InvalidField(prefix_ + std::string(name), "{}", why);
}

void FieldReader::Fail(const Status& error) {
  if (status_.ok()) status_ = error;
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t low, int64_t high) {
  const auto value = Any(name);
  if (!value) return std::nullopt;
  int64_t number = 0;
  double real = 0;
  // 5.0 is an integer to every client that lost the type on the way.
  if (value->get(number) != simdjson::SUCCESS) {
    if (value->get(real) != simdjson::SUCCESS || real != std::floor(real) ||
        std::fabs(real) > 9e15) {
      Fail(name, "must be an integer");
      return std::nullopt;
    }
    number = static_cast<int64_t>(real);
  }
  if (number < low || number > high) {
    Fail(name, fmt::format("is {}, must be between {} and {}", number, low, high));
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::Number(std::string_view name, double low, double high) {
  const auto value = Any(name);
  if (!value) return std::nullopt;
  double number = 0;
  if (value->get(number) != simdjson::SUCCESS) {
    Fail(name, "must be a number");
    return std::nullopt;
  }
  if (!(number >= low && number <= high)) {
    Fail(name, fmt::format("is {}, must be between {} and {}", number, low, high));
    return std::nullopt;
  }
  return number;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const auto value = Any(name);
  if (!value) return std::nullopt;
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) {
    Fail(name, "must be true or false");
    return std::nullopt;
  }
  return flag;
}

std::optional<std::string_view> FieldReader::String(std::string_view name) {
  const auto value = Any(name);
  if (!value) return std::nullopt;
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    Fail(name, "must be a string");
    return std::nullopt;
  }
  return text;
}

std::optional<simdjson::dom::array> FieldReader::Array(std::string_view name) {
  const auto value = Any(name);
  if (!value) return std::nullopt;
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    Fail(name, "must be a list");
    return std::nullopt;
  }
  return array;
}

std::optional<simdjson::dom::object> FieldReader::Object(std::string_view name) {
  const auto value = Any(name);
  if (!value) return std::nullopt;
  simdjson::dom::object object;
  if (value->get(object) != simdjson::SUCCESS) {
    Fail(name, "must be an object");
    return std::nullopt;
  }
  return object;
}

std::vector<std::string> FieldReader::Strings(std::string_view name, size_t max_count) {
  const auto value = Any(name);
  std::vector<std::string> strings;
  if (!value) return strings;
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS) return {std::string(text)};
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    Fail(name, "must be a string or a list of strings");
    return strings;
  }
  for (const element item : array) {
    if (item.get(text) != simdjson::SUCCESS) {
      Fail(name, "must be a string or a list of strings");
      return {};
    }
    if (strings.size() == max_count) {
      Fail(name, fmt::format("holds more than {} strings", max_count));
      return {};
    }
    strings.emplace_back(text);
  }
  return strings;
}

std::vector<int32_t> FieldReader::TokenIds(std::string_view name, int32_t vocab_size) {
  const auto array = Array(name);
  if (!array) return {};
  auto ids = ReadTokenIds(*array, prefix_ + std::string(name), vocab_size);
  if (ids.ok()) return std::move(ids).value();
  Fail(ids.status());
  return {};
}

std::vector<std::string> FieldReader::Unread() const {
  std::vector<std::string> unread;
  for (const auto field : object_) {
    if (std::find(seen_.begin(), seen_.end(), field.key) == seen_.end()) {
      unread.emplace_back(field.key);
    }
  }
  return unread;
}

std::string Shown(std::string_view text) {
  if (text.size() <= kMaxShown) return std::string(text);
  size_t end = kMaxShown;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

Result<simdjson::dom::object> ParseBody(simdjson::dom::parser& parser, std::string_view body) {
  element root;
  const auto error = parser.parse(body.data(), body.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return Error(ErrorCode::kInvalidArgument, "the body is not valid JSON: {}",
                 simdjson::error_message(error));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return Status(ErrorCode::kInvalidArgument, "the body must be a JSON object");
  }
  return object;
}

Result<std::vector<int32_t>> ReadTokenIds(simdjson::dom::array array, const std::string& field,
                                          int32_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const element item : array) {
    int64_t id = 0;
    if (item.get(id) != simdjson::SUCCESS) return InvalidField(field, "must hold token ids");
    if (id < 0 || id >= vocab_size) {
      return InvalidField(field, "holds {}, token ids are 0 to {}", id, vocab_size - 1);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace hayate::api
