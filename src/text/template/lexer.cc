#include "text/template/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/code_points.h"
#include "text/template/number_literal.h"
#include "text/template/string_literal.h"

namespace hayate::text::jinja {
namespace {

// CRLF and CR become LF; one newline at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameCharacter(char32_t c) {
  if (c < 0x80) {
    const char a = static_cast<char>(c);
    return IsAsciiDigit(a) || a == '_' || (a >= 'a' && a <= 'z') || (a >= 'A' && a <= 'Z');
  }
  return IsAlphabetic(c) || IsDigit(c);
}

bool IsWhitespaceOnly(std::string_view text) { return StripLeft(text).empty(); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (offset_ < source_.size()) RETURN_IF_ERROR(LexTextAndTag());
    Add(Token::Kind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(offset_); }
  bool At(std::string_view text) const { return Rest().starts_with(text); }

  // Offsets are asked for in rising order, so the scan is linear over the whole source.
  Position PositionAt(size_t offset) {
    while (mark_ < offset) {
      if (source_[mark_] == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((source_[mark_] & 0xC0) != 0x80) {
        ++position_.column;
      }
      ++mark_;
    }
    return position_;
  }

  void Add(Token::Kind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), PositionAt(offset)});
  }

  Status Fail(std::string_view message) { return ErrorAt(PositionAt(offset_), message); }

  void SkipSpace() { offset_ = source_.size() - StripLeft(Rest()).size(); }

  size_t FindTag() const {
    for (size_t i = source_.find('{', offset_); i != std::string::npos;
         i = source_.find('{', i + 1)) {
      if (i + 1 >= source_.size()) break;
      const char next = source_[i + 1];
      if (next == '%' || next == '{' || next == '#') return i;
    }
    return std::string::npos;
  }

  // Adds the text [begin, end) before a tag whose opening carries `sign` ('-', '+' or none).
  void AddText(size_t begin, size_t end, char sign, char tag) {
    std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && tag != '{') {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      const bool starts_line = line > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (starts_line && IsWhitespaceOnly(text.substr(line))) text = text.substr(0, line);
    }
    if (!text.empty()) Add(Token::Kind::kText, std::string(text), begin);
  }

  char SignAt(size_t offset) const {
    const char c = offset < source_.size() ? source_[offset] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  Status LexTextAndTag() {
    const size_t tag = FindTag();
    if (tag == std::string::npos) {
      AddText(offset_, source_.size(), '+', '{');
      offset_ = source_.size();
      return OkStatus();
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddText(offset_, tag, sign, kind);
    offset_ = tag + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return SkipComment();
    if (kind == '%' && SkipRawBegin()) return LexRaw();
    const bool block = kind == '%';
    Add(block ? Token::Kind::kBlockBegin : Token::Kind::kVariableBegin, "", tag);
    return LexTag(block);
  }

  // Consumes the end of a tag whose two closing characters stand at `close`.
  void SkipTagEnd(size_t close, size_t tag_begin) {
    const char sign = close > tag_begin ? SignAt(close - 1) : '\0';
    offset_ = close + 2;
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && At("\n")) {
      ++offset_;
    }
  }

  Status SkipComment() {
    const size_t close = source_.find("#}", offset_);
    if (close == std::string::npos) return Fail("this comment is never closed with '#}'");
    SkipTagEnd(close, offset_);
    return OkStatus();
  }

  // After "{%" and its sign: consumes " raw %}" and says whether it was there.
  bool SkipRawBegin() {
    const size_t start = offset_;
    SkipSpace();
    if (At("raw")) {
      offset_ += 3;
      SkipSpace();
      if (At("-%}")) {
        offset_ += 3;
        SkipSpace();
        return true;
      }
      if (At("%}")) {
        offset_ += 2;
        return true;
      }
    }
    offset_ = start;
    return false;
  }

  Status LexRaw() {
    const size_t begin = offset_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = SignAt(tag + 2);
      offset_ = tag + 2 + (sign != '\0' ? 1 : 0);
      SkipSpace();
      if (!At("endraw")) continue;
      offset_ += 6;
      SkipSpace();
      const size_t close = SignAt(offset_) != '\0' ? offset_ + 1 : offset_;
      if (!std::string_view(source_).substr(close).starts_with("%}")) continue;
      AddText(begin, tag, sign, '%');
      SkipTagEnd(close, offset_);
      return OkStatus();
    }
    offset_ = begin;
    return Fail("this raw block is never closed with '{% endraw %}'");
  }

  // The tokens up to and including the end of the tag.
  Status LexTag(bool block) {
    std::string open_brackets;
    const std::string_view close = block ? "%}" : "}}";
    while (offset_ < source_.size()) {
      if (IsSpace(CodePointAt(source_, offset_).value)) {
        SkipSpace();
        continue;
      }
      const bool has_sign = source_[offset_] == '-' || (block && source_[offset_] == '+');
      if (open_brackets.empty() && Rest().substr(has_sign ? 1 : 0).starts_with(close)) {
        Add(block ? Token::Kind::kBlockEnd : Token::Kind::kVariableEnd, "", offset_);
        SkipEndOf(block, has_sign);
        return OkStatus();
      }
      RETURN_IF_ERROR(LexToken(open_brackets));
    }
    return Fail(block ? "a tag is never closed with '%}'" : "a tag is never closed with '}}'");
  }

  void SkipEndOf(bool block, bool has_sign) {
    const size_t begin = offset_;
    if (block) return SkipTagEnd(begin + (has_sign ? 1 : 0), begin);
    offset_ = begin + 2 + (has_sign ? 1 : 0);
    if (has_sign) SkipSpace();
  }

  Status LexToken(std::string& open_brackets) {
    const char c = source_[offset_];
    if (c == '\'' || c == '"') return LexString(c);
    if (IsAsciiDigit(c)) return LexNumber();
    if (IsNameCharacter(CodePointAt(source_, offset_).value)) return LexName();
    return LexOperator(open_brackets);
  }

  Status LexString(char quote) {
    const size_t begin = offset_;
    size_t end = begin + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("this string is never closed");
    Result<std::string> value =
        UnescapeString(std::string_view(source_).substr(begin + 1, end - begin - 1));
    if (!value.ok()) return Fail(value.status().message());
    Add(Token::Kind::kString, std::move(value).value(), begin);
    offset_ = end + 1;
    return OkStatus();
  }

  Status LexName() {
    const size_t begin = offset_;
    while (offset_ < source_.size()) {
      const CodePoint c = CodePointAt(source_, offset_);
      if (!IsNameCharacter(c.value)) break;
      offset_ += c.length;
    }
    Add(Token::Kind::kName, source_.substr(begin, offset_ - begin), begin);
    return OkStatus();
  }

  Status LexNumber() {
    const size_t begin = offset_;
    // `x.0.1` is two subscripts, no fraction.
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    Result<NumberLiteral> number = after_dot ? ScanInteger(Rest()) : ScanNumber(Rest());
    if (!number.ok()) return Fail(number.status().message());
    offset_ += number->length;
    Add(number->is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(number->digits),
        begin);
    return OkStatus();
  }

  Status LexOperator(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    const size_t begin = offset_;
    const std::string_view two = Rest().substr(0, 2);
    if (std::find(kPairs.begin(), kPairs.end(), two) != kPairs.end()) {
      Add(Token::Kind::kOperator, std::string(two), begin);
      offset_ += 2;
      return OkStatus();
    }
    const char c = source_[begin];
    if (kSingles.find(c) == std::string_view::npos) {
      return Fail(fmt::format("unexpected character '{}'",
                              Rest().substr(0, CodePointAt(source_, begin).length)));
    }
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) return Fail(fmt::format("unexpected '{}'", c));
      if (open_brackets.back() != c) {
        return Fail(fmt::format("unexpected '{}', expected '{}'", c, open_brackets.back()));
      }
      open_brackets.pop_back();
    }
    Add(Token::Kind::kOperator, std::string(1, c), begin);
    ++offset_;
    return OkStatus();
  }

  std::string source_;
  size_t offset_ = 0;
  std::vector<Token> tokens_;
  // The last position asked for, and its offset.
  Position position_;
  size_t mark_ = 0;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

Status ErrorAt(Position position, std::string_view message) {
  return Error(ErrorCode::kInvalidArgument, "template line {}, column {}: {}", position.line,
               position.column, message);
}

}  // namespace hayate::text::jinja
