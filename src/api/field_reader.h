#pragma once
// Typed, checked access to the fields of one JSON object of a request. The first thing that is
// wrong is kept as status(), naming the field; later reads go on and give nothing.
//
//   FieldReader fields(object);
//   spec.top_p = fields.Number("top_p", 0, 1).value_or(1.0);
//   RETURN_IF_ERROR(fields.status());
//
// A null field counts as absent.

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hayate::api {

class FieldReader {
 public:
  // `prefix` stands before names in messages: "messages[2].".
  explicit FieldReader(simdjson::dom::object object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  std::optional<int64_t> Int(std::string_view name, int64_t low, int64_t high);
  // Bounds are included; NaN and infinities cannot be written in JSON.
  std::optional<double> Number(std::string_view name, double low, double high);
  std::optional<bool> Bool(std::string_view name);
  // Views live as long as the parsed document.
  std::optional<std::string_view> String(std::string_view name);
  std::optional<simdjson::dom::array> Array(std::string_view name);
  std::optional<simdjson::dom::object> Object(std::string_view name);
  std::optional<simdjson::dom::element> Any(std::string_view name);
  // A string or a list of strings; nothing when absent.
  std::vector<std::string> Strings(std::string_view name, size_t max_count);
  // A list of token ids in [0, vocab_size).
  std::vector<int32_t> TokenIds(std::string_view name, int32_t vocab_size);
  // Accepts the field whatever it holds.
  void Ignore(std::string_view name) { seen_.push_back(name); }

  void Fail(std::string_view name, std::string_view why);
  // An error found elsewhere, its field named already.
  void Fail(const Status& error);
  const Status& status() const { return status_; }
  // Fields of the object that no call has named.
  std::vector<std::string> Unread() const;

 private:
  simdjson::dom::object object_;
  std::string prefix_;
  std::vector<std::string_view> seen_;
  Status status_;
};

// `text` as error messages and logs quote it: cut after kMaxShown bytes, never inside a character.
std::string Shown(std::string_view text);
inline constexpr size_t kMaxShown = 80;

// Parses a request's body: one JSON object. Errors say where it stops being JSON. The parser owns
// the document.
Result<simdjson::dom::object> ParseBody(simdjson::dom::parser& parser, std::string_view body);

// The ids of a JSON array; errors name `field`.
Result<std::vector<int32_t>> ReadTokenIds(simdjson::dom::array array, const std::string& field,
                                          int32_t vocab_size);

}  // namespace hayate::api
