#include "text/template/format.h"

#include <cmath>
#include <optional>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/code_points.h"
#include "text/template/format_spec.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {
namespace {

Status TooFew() { return Error(ErrorCode::kInvalidArgument, "too few arguments for the format"); }

class PercentFormatter {
 public:
  PercentFormatter(State& state, std::string_view format, const Value& arguments)
      : state_(state), rest_(format), arguments_(arguments) {
    is_tuple_ = arguments.is_sequence() && arguments.sequence().type == SequenceType::kTuple;
  }

  Result<Value> Run() {
    while (!rest_.empty()) {
      const size_t percent = std::min(rest_.find('%'), rest_.size());
      out_ += rest_.substr(0, percent);
      rest_.remove_prefix(percent);
      if (!rest_.empty()) RETURN_IF_ERROR(AppendConversion());
      RETURN_IF_ERROR(state_.Step());
      RETURN_IF_ERROR(state_.CheckStringSize(out_.size()));
    }
    const size_t given = is_tuple_ ? arguments_.sequence().items.size() : 1;
    if (used_ < given && !arguments_.is_dict() && !(arguments_.is_sequence() && !is_tuple_)) {
      return Error(ErrorCode::kInvalidArgument, "the format does not use all its arguments");
    }
    return state_.NewString(std::move(out_));
  }

 private:
  bool Take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<Value> NextArgument() {
    if (!is_tuple_) return used_++ == 0 ? Result<Value>(arguments_) : TooFew();
    const std::vector<Value>& items = arguments_.sequence().items;
    return used_ < items.size() ? Result<Value>(items[used_++]) : TooFew();
  }

  Result<int> TakeNumber() {
    int value = 0;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      value = value * 10 + (rest_[0] - '0');
      if (value > FormatSpec::kMaxWidth) {
        return Error(ErrorCode::kInvalidArgument, "a format's width is over {}",
                     FormatSpec::kMaxWidth);
      }
      rest_.remove_prefix(1);
    }
    return value;
  }

  void TakeFlags(FormatSpec& spec) {
    while (true) {
      if (Take('-')) {
        spec.align = '<';
        spec.fill = U' ';
      } else if (Take('0')) {
        if (spec.align == '\0') spec.align = '=', spec.fill = U'0';
      } else if (Take('+')) {
        spec.sign = '+';
      } else if (Take(' ')) {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (Take('#')) {
        spec.alternate = true;
      } else {
        return;
      }
    }
  }

  // rest_ starts with '%'.
  Status AppendConversion() {
    rest_.remove_prefix(1);
    std::optional<Value> named;
    if (Take('(')) {
      const size_t close = rest_.find(')');
      if (close == std::string_view::npos || !arguments_.is_dict()) {
        return Error(ErrorCode::kInvalidArgument, "%(name) needs a closing ')' and a dict");
      }
      const Value* found = arguments_.dict().Find(rest_.substr(0, close));
      if (found == nullptr) {
        return Error(ErrorCode::kInvalidArgument, "the format names '{}', which the dict lacks",
                     rest_.substr(0, close));
      }
      named = *found;
      rest_.remove_prefix(close + 1);
    }
    FormatSpec spec;
    TakeFlags(spec);
    ASSIGN_OR_RETURN(spec.width, TakeNumber());
    if (Take('.')) {
      ASSIGN_OR_RETURN(spec.precision, TakeNumber());
    }
    if (rest_.empty()) return Error(ErrorCode::kInvalidArgument, "the format ends after '%'");
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    if (spec.type == '%') {
      out_ += '%';
      return OkStatus();
    }
    if (!named) {
      ASSIGN_OR_RETURN(named, NextArgument());
    }
    return AppendValue(spec, *named);
  }

  Status AppendValue(FormatSpec spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return AppendAsText(spec, value);
      case 'c':
        if (value.is_string() && Length(value.string()) == 1) return AppendAsText(spec, value);
        break;
      case 'i':
      case 'u':
        spec.type = 'd';
        break;
      default:
        break;
    }
    if (!value.is_number()) {
      return Error(ErrorCode::kInvalidArgument, "format %{} needs a number, not {}", spec.type,
                   value.type_name());
    }
    static constexpr std::string_view kIntegerTypes = "dxXoc", kFloatTypes = "eEfFgG";
    std::string text;
    if (kFloatTypes.find(spec.type) != std::string_view::npos) {
      ASSIGN_OR_RETURN(text, FormatFloat(spec, value.as_double()));
    } else if (kIntegerTypes.find(spec.type) == std::string_view::npos) {
      return Error(ErrorCode::kInvalidArgument, "unknown format '%{}'", spec.type);
    } else if (value.is_integral()) {
      ASSIGN_OR_RETURN(text, FormatInteger(spec, value.as_int()));
    } else if (spec.type == 'd' && std::fabs(value.as_double()) < 9e18) {
      ASSIGN_OR_RETURN(text, FormatInteger(spec, static_cast<int64_t>(value.as_double())));
    } else {
      return Error(ErrorCode::kInvalidArgument, "format %{} needs an integer", spec.type);
    }
    out_ += text;
    return OkStatus();
  }

  Status AppendAsText(FormatSpec spec, const Value& value) {
    if (spec.align == '=' || spec.align == '\0') spec.align = '>', spec.fill = U' ';
    std::string text;
    RETURN_IF_ERROR(spec.type == 's' || spec.type == 'c' ? AppendText(state_, value, text)
                                                         : AppendRepr(state_, value, text));
    out_ += FormatText(spec, text);
    return OkStatus();
  }

  State& state_;
  std::string_view rest_;
  const Value& arguments_;
  bool is_tuple_ = false;
  size_t used_ = 0;
  std::string out_;
};

class BraceFormatter {
 public:
  BraceFormatter(State& state, std::string_view format, const Arguments& arguments)
      : state_(state), rest_(format), arguments_(arguments) {}

  Result<Value> Run() {
    while (!rest_.empty()) {
      const size_t brace = std::min(rest_.find_first_of("{}"), rest_.size());
      out_ += rest_.substr(0, brace);
      rest_.remove_prefix(brace);
      if (rest_.starts_with("{{") || rest_.starts_with("}}")) {
        out_ += rest_[0];
        rest_.remove_prefix(2);
      } else if (rest_.starts_with('{')) {
        RETURN_IF_ERROR(AppendField());
      } else if (!rest_.empty()) {
        return Error(ErrorCode::kInvalidArgument, "a single '}}' in a format");
      }
      RETURN_IF_ERROR(state_.Step());
      RETURN_IF_ERROR(state_.CheckStringSize(out_.size()));
    }
    return state_.NewString(std::move(out_));
  }

 private:
  // "{name.attribute[0]!r:>10}"; rest_ starts with '{'.
  Status AppendField() {
    const size_t close = rest_.find('}');
    if (close == std::string_view::npos) {
      return Error(ErrorCode::kInvalidArgument, "a '{{' in a format is never closed");
    }
    std::string_view field = rest_.substr(1, close - 1);
    rest_.remove_prefix(close + 1);
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec_text = field.substr(std::min(colon + 1, field.size()));
    field = field.substr(0, colon);
    char conversion = '\0';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    ASSIGN_OR_RETURN(Value value, FieldValue(field));
    if (conversion == 'r' || conversion == 's') {
      std::string text;
      RETURN_IF_ERROR(conversion == 'r' ? AppendRepr(state_, value, text)
                                        : AppendText(state_, value, text));
      value = Value::String(std::move(text));
    } else if (conversion != '\0') {
      return Error(ErrorCode::kInvalidArgument, "unknown conversion '!{}'", conversion);
    }
    ASSIGN_OR_RETURN(const FormatSpec spec, ParseFormatSpec(spec_text));
    ASSIGN_OR_RETURN(const std::string text, FormatValue(state_, spec, value));
    out_ += text;
    return OkStatus();
  }

  Result<Value> FieldValue(std::string_view field) {
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    ASSIGN_OR_RETURN(Value value, NamedArgument(field.substr(0, name_end)));
    field.remove_prefix(name_end);
    while (!field.empty()) {
      const bool is_index = field[0] == '[';
      const size_t end =
          is_index ? field.find(']') : std::min(field.find_first_of(".[", 1), field.size());
      if (end == std::string_view::npos) {
        return Error(ErrorCode::kInvalidArgument, "a '[' in a format is never closed");
      }
      const std::string key(field.substr(1, end - 1));
      ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(Value::String(key)));
      ASSIGN_OR_RETURN(value, path.Get(state_, value));
      field.remove_prefix(is_index ? end + 1 : end);
    }
    return value;
  }

  Result<Value> NamedArgument(std::string_view name) {
    const bool is_number = !name.empty() && name.size() < 6 &&
                           name.find_first_not_of("0123456789") == std::string_view::npos;
    if (name.empty() || is_number) {
      const size_t index =
          name.empty() ? next_++ : static_cast<size_t>(std::stoi(std::string(name)));
      return index < arguments_.positional.size() ? Result<Value>(arguments_.positional[index])
                                                  : TooFew();
    }
    for (const auto& [key, value] : arguments_.keyword) {
      if (key == name) return value;
    }
    return Error(ErrorCode::kInvalidArgument, "the format names '{}', which is not given", name);
  }

  State& state_;
  std::string_view rest_;
  const Arguments& arguments_;
  size_t next_ = 0;
  std::string out_;
};

}  // namespace

Result<Value> FormatPercent(State& state, const std::string& format, const Value& arguments) {
  return PercentFormatter(state, format, arguments).Run();
}

Result<Value> FormatBraces(State& state, const std::string& format, const Arguments& arguments) {
  return BraceFormatter(state, format, arguments).Run();
}

}  // namespace hayate::text::jinja
