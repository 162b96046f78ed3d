#include "text/template/number_literal.h"

#include "base/error.h"

namespace hayate::text::jinja {
namespace {

bool IsDigitOf(char base, char c) {
  const char lower = static_cast<char>(c | 0x20);
  switch (base) {
    case 'b':
      return c == '0' || c == '1';
    case 'o':
      return c >= '0' && c <= '7';
    case 'x':
      return (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'f');
    default:
      return c >= '0' && c <= '9';
  }
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Result<NumberLiteral> Integer() {
    const char base = At(0) == '0' ? static_cast<char>(At(1) | 0x20) : 'd';
    if (base == 'x' || base == 'o' || base == 'b') {
      number_.digits = {'0', base};
      number_.length = 2;
      TakeDigits(base);
      if (number_.digits.size() > 2) return number_;
      return Error(ErrorCode::kInvalidArgument, "a number has no digits after its base");
    }
    TakeDigits('d');
    return number_;
  }

  Result<NumberLiteral> Number() {
    RETURN_IF_ERROR(Integer().status());
    if (number_.digits.size() > 1 && number_.digits[1] > '9') return number_;
    TakeFraction();
    const bool leading_zero =
        number_.digits[0] == '0' && number_.digits.find_first_not_of('0') != std::string::npos;
    if (leading_zero && !number_.is_float) {
      return Error(ErrorCode::kInvalidArgument, "a decimal number starts with zero");
    }
    return number_;
  }

 private:
  char At(size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }

  // Single underscores may stand between digits.
  void TakeDigits(char base) {
    while (true) {
      const char c = At(number_.length);
      if (IsDigitOf(base, c)) {
        number_.digits += c;
      } else if (c != '_' || !IsDigitOf(base, At(number_.length + 1))) {
        return;
      }
      ++number_.length;
    }
  }

  void TakeFraction() {
    if (At(number_.length) == '.' && IsDigitOf('d', At(number_.length + 1))) {
      number_.is_float = true;
      number_.digits += '.';
      ++number_.length;
      TakeDigits('d');
    }
    if ((At(number_.length) | 0x20) != 'e') return;
    const char sign = At(number_.length + 1);
    const size_t first = number_.length + (sign == '+' || sign == '-' ? 2 : 1);
    if (!IsDigitOf('d', At(first))) return;
    number_.is_float = true;
    number_.digits += text_.substr(number_.length, first - number_.length);
    number_.length = first;
    TakeDigits('d');
  }

  std::string_view text_;
  NumberLiteral number_;
};

}  // namespace

Result<NumberLiteral> ScanNumber(std::string_view text) { return Scanner(text).Number(); }

Result<NumberLiteral> ScanInteger(std::string_view text) { return Scanner(text).Integer(); }

}  // namespace hayate::text::jinja
