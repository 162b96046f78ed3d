#include "text/dialect/python_literal.h"

#include <cctype>

#include "text/dialect/call_reader.h"
#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<std::string> KeywordArguments() {
    out_ = "{";
    SkipBlanks();
    while (at_ < text_.size()) {
      const std::string_view key = Word();
      if (key.empty() || !Eat('=')) return std::nullopt;
      out_ += "\"" + std::string(key) + "\": ";
      if (!Value(0)) return std::nullopt;
      SkipBlanks();
      if (at_ == text_.size()) break;
      if (!Eat(',')) return std::nullopt;
      SkipBlanks();
      if (at_ < text_.size()) out_ += ", ";
    }
    return out_ + "}";
  }

 private:
  static constexpr int kMaxDepth = 64;

  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }
  bool Eat(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  char Peek() {
    SkipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  std::string_view Word() {
    SkipBlanks();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  bool Value(int depth) {
    if (depth > kMaxDepth) return false;
    const char c = Peek();
    if (c == '"' || c == '\'') return String();
    if (c == '[' || c == '(') return List(c == '[' ? ']' : ')', depth);
    if (c == '{') return Dict(depth);
    if (c == '-' || (c >= '0' && c <= '9')) return Number();
    const std::string_view word = Word();
    const bool known = word == "True" || word == "False" || word == "None" || word == "true" ||
                       word == "false" || word == "null";
    if (!known) return false;
    out_ += word == "None"                               ? "null"
            : word.front() == 'T' || word.front() == 't' ? "true"
            : word == "null"                             ? "null"
                                                         : "false";
    return true;
  }

  bool Number() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos) {
      ++at_;
    }
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (!IsJsonValue(number)) return false;
    out_ += number;
    return true;
  }

  bool List(char close, int depth) {
    ++at_;
    out_ += '[';
    for (bool first = true; Peek() != close; first = false) {
      if (!first) out_ += ", ";
      if (!Value(depth + 1)) return false;
      if (Peek() != close && !Eat(',')) return false;
    }
    ++at_;
    out_ += ']';
    return true;
  }

  bool Dict(int depth) {
    ++at_;
    out_ += '{';
    for (bool first = true; Peek() != '}'; first = false) {
      if (!first) out_ += ", ";
      if (Peek() != '"' && Peek() != '\'') return false;
      if (!String() || !Eat(':')) return false;
      out_ += ": ";
      if (!Value(depth + 1)) return false;
      if (Peek() != '}' && !Eat(',')) return false;
    }
    ++at_;
    out_ += '}';
    return true;
  }

  bool String() {
    const char quote = text_[at_++];
    out_ += '"';
    while (at_ < text_.size() && text_[at_] != quote) {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        constexpr std::string_view kLetters = "ntrbf0";
        constexpr std::string_view kMeanings = "\n\t\r\b\f";
        const size_t index = kLetters.find(c);
        if (index < kMeanings.size()) c = kMeanings[index];
      }
      AppendEscaped(out_, {&c, 1});
    }
    if (at_ == text_.size()) return false;
    ++at_;
    out_ += '"';
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::optional<std::string> KeywordArgumentsAsJson(std::string_view text) {
  return LiteralReader(text).KeywordArguments();
}

}  // namespace hayate::text
