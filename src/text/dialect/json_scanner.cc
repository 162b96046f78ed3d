#include "text/dialect/json_scanner.h"

#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Step JsonScanner::Push(char byte) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
      return PushString(byte);
    case State::kNumber:
      return PushNumber(byte);
    case State::kLiteral:
      return PushLiteral(byte);
    case State::kBad:
      return Step::kBad;
    default:
      break;
  }
  if (IsBlank(byte)) return Step::kMore;
  switch (state_) {
    case State::kFirstValue:
      if (byte == ']') return EndValue();
      return BeginValue(byte);
    case State::kValue:
      return BeginValue(byte);
    case State::kFirstKey:
      if (byte == '}') return EndValue();
      [[fallthrough]];
    case State::kKey:
      if (byte != '"') return Fail();
      string_is_key_ = true;
      state_ = State::kString;
      return Step::kMore;
    case State::kColon:
      if (byte != ':') return Fail();
      state_ = State::kValue;
      return Step::kMore;
    case State::kAfter:
      return PushAfter(byte);
    default:
      return Fail();
  }
}

JsonScanner::Step JsonScanner::BeginValue(char byte) {
  if (byte == '{' || byte == '[') {
    if (open_.size() == kMaxDepth) return Fail();
    open_ += byte;
    state_ = byte == '{' ? State::kFirstKey : State::kFirstValue;
    return Step::kMore;
  }
  if (byte == '"') {
    string_is_key_ = false;
    state_ = State::kString;
    return Step::kMore;
  }
  if (open_.empty()) return Fail();  // a bare number has no last byte
  if (byte == '-' || IsDigit(byte)) {
    number_ = byte == '-' ? Number::kSign : byte == '0' ? Number::kZero : Number::kWhole;
    state_ = State::kNumber;
    return Step::kMore;
  }
  for (const std::string_view literal : {"true", "false", "null"}) {
    if (literal.front() != byte) continue;
    literal_ = literal.substr(1);
    state_ = State::kLiteral;
    return Step::kMore;
  }
  return Fail();
}

JsonScanner::Step JsonScanner::PushString(char byte) {
  if (hex_ > 0) {
    if (!IsHex(byte)) return Fail();
    if (--hex_ == 0) state_ = State::kString;
    return Step::kMore;
  }
  if (state_ == State::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return Fail();
    if (byte == 'u') {
      hex_ = 4;
    } else {
      state_ = State::kString;
    }
    return Step::kMore;
  }
  if (static_cast<unsigned char>(byte) < 0x20) return Fail();
  if (byte == '\\') {
    state_ = State::kEscape;
    return Step::kMore;
  }
  if (byte != '"') return Step::kMore;
  if (string_is_key_) {
    state_ = State::kColon;
    return Step::kMore;
  }
  state_ = State::kAfter;
  return open_.empty() ? Step::kDone : Step::kMore;
}

JsonScanner::Step JsonScanner::PushNumber(char byte) {
  const bool digit = IsDigit(byte);
  switch (number_) {
    case Number::kSign:
      if (!digit) return Fail();
      number_ = byte == '0' ? Number::kZero : Number::kWhole;
      return Step::kMore;
    case Number::kWhole:
      if (digit) return Step::kMore;
      [[fallthrough]];
    case Number::kZero:
      if (byte == '.') return number_ = Number::kPoint, Step::kMore;
      if (byte == 'e' || byte == 'E') return number_ = Number::kExponent, Step::kMore;
      break;
    case Number::kPoint:
      if (!digit) return Fail();
      number_ = Number::kFraction;
      return Step::kMore;
    case Number::kFraction:
      if (digit) return Step::kMore;
      if (byte == 'e' || byte == 'E') return number_ = Number::kExponent, Step::kMore;
      break;
    case Number::kExponent:
      if (byte == '+' || byte == '-') return number_ = Number::kExponentSign, Step::kMore;
      [[fallthrough]];
    case Number::kExponentSign:
      if (!digit) return Fail();
      number_ = Number::kPower;
      return Step::kMore;
    case Number::kPower:
      if (digit) return Step::kMore;
      break;
  }
  state_ = State::kAfter;
  return Push(byte);
}

JsonScanner::Step JsonScanner::PushLiteral(char byte) {
  if (byte != literal_.front()) return Fail();
  literal_.remove_prefix(1);
  if (literal_.empty()) state_ = State::kAfter;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::PushAfter(char byte) {
  if (open_.empty()) return Fail();
  const bool object = open_.back() == '{';
  if (byte == ',') {
    state_ = object ? State::kKey : State::kValue;
    return Step::kMore;
  }
  return byte == (object ? '}' : ']') ? EndValue() : Fail();
}

JsonScanner::Step JsonScanner::EndValue() {
  open_.pop_back();
  state_ = State::kAfter;
  return open_.empty() ? Step::kDone : Step::kMore;
}

}  // namespace hayate::text
