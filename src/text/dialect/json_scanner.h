#pragma once
// Checks a JSON value byte by byte, as it arrives (RFC 8259). Strings are taken as UTF-8 already.

#include <cstdint>
#include <string>
#include <string_view>

namespace hayate::text {

class JsonScanner {
 public:
  enum class Step : uint8_t {
    kMore,  // a part of the value, which goes on
    kDone,  // the last byte of the value
    kBad,   // cannot follow; the scanner is of no further use
  };
  static constexpr size_t kMaxDepth = 256;

  // Takes an object, array or string whole. Leading white space is part of nothing: kMore.
  Step Push(char byte);

  // Containers that are open.
  size_t depth() const { return open_.size(); }
  bool in_string() const {
    return state_ == State::kString || state_ == State::kEscape || hex_ > 0;
  }
  // The next string at this depth is a key.
  bool expects_key() const { return state_ == State::kFirstKey || state_ == State::kKey; }
  bool expects_value() const { return state_ == State::kValue || state_ == State::kFirstValue; }
  bool after_value() const { return state_ == State::kAfter; }

 private:
  enum class State : uint8_t {
    kValue,       // a value must come
    kFirstValue,  // or ]
    kFirstKey,    // a key must come, or }
    kKey,
    kColon,
    kAfter,  // , or the container's end
    kString,
    kEscape,
    kNumber,
    kLiteral,
    kBad,
  };
  enum class Number : uint8_t {
    kSign,
    kZero,
    kWhole,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kPower
  };

  Step BeginValue(char byte);
  Step PushString(char byte);
  Step PushNumber(char byte);
  Step PushLiteral(char byte);
  Step PushAfter(char byte);
  Step EndValue();
  Step Fail() {
    state_ = State::kBad;
    return Step::kBad;
  }

  std::string open_;  // '{' and '['
  State state_ = State::kValue;
  Number number_ = Number::kSign;
  bool string_is_key_ = false;
  int hex_ = 0;  // hexadecimal digits of \u that are missing
  std::string_view literal_;
};

}  // namespace hayate::text
