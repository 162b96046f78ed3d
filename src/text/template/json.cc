#include "text/template/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/json_writer.h"
#include "text/template/code_points.h"
#include "text/template/comparison.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {
namespace {

Value FromElement(simdjson::dom::element element) {
  using simdjson::dom::element_type;
  switch (element.type()) {
    case element_type::NULL_VALUE:
      return Value::None();
    case element_type::BOOL:
      return Value::Bool(bool(element));
    case element_type::INT64:
      return Value::Int(int64_t(element));
    case element_type::UINT64:
      return Value::Float(static_cast<double>(uint64_t(element)));
    case element_type::DOUBLE:
      return Value::Float(double(element));
    case element_type::STRING:
      return Value::String(std::string(std::string_view(element)));
    case element_type::ARRAY: {
      std::vector<Value> items;
      for (const simdjson::dom::element item : simdjson::dom::array(element)) {
        items.push_back(FromElement(item));
      }
      return Value::List(std::move(items));
    }
    case element_type::OBJECT:
      break;
  }
  Dict dict;
  for (const simdjson::dom::key_value_pair field : simdjson::dom::object(element)) {
    dict.Set(std::string(field.key), FromElement(field.value));
  }
  return Value::FromDict(std::move(dict));
}

class JsonPrinter {
 public:
  JsonPrinter(State& state, const JsonStyle& style) : state_(state), style_(style) {}

  Status Append(const Value& value, int level) {
    RETURN_IF_ERROR(state_.Step());
    RETURN_IF_ERROR(state_.CheckStringSize(out.size()));
    switch (value.kind()) {
      case Value::Kind::kNone:
        out += "null";
        return OkStatus();
      case Value::Kind::kBool:
        out += value.as_bool() ? "true" : "false";
        return OkStatus();
      case Value::Kind::kInt:
        out += std::to_string(value.as_int());
        return OkStatus();
      case Value::Kind::kFloat:
        AppendNumber(value.as_double());
        return OkStatus();
      case Value::Kind::kString:
        AppendString(value.string());
        return OkStatus();
      case Value::Kind::kDict:
        return AppendDict(value.dict(), level);
      case Value::Kind::kSequence:
        if (value.sequence().type == SequenceType::kList ||
            value.sequence().type == SequenceType::kTuple) {
          return AppendList(value.sequence().items, level);
        }
        break;
      case Value::Kind::kUndefined:
        return Error(ErrorCode::kInvalidArgument, "tojson of an undefined value: {}",
                     value.undefined_reason());
      case Value::Kind::kObject:
        break;
    }
    return Error(ErrorCode::kInvalidArgument, "{} cannot be written as JSON", value.type_name());
  }

  std::string out;

 private:
  // Python writes what JSON has no word for.
  void AppendNumber(double value) {
    if (std::isnan(value)) {
      out += "NaN";
    } else if (std::isinf(value)) {
      out += value < 0 ? "-Infinity" : "Infinity";
    } else {
      AppendFloat(out, value);
    }
  }

  void AppendUnit(uint32_t unit) { fmt::format_to(std::back_inserter(out), "\\u{:04x}", unit); }

  void AppendCharacter(char32_t c) {
    if (c < 0x20 || c == '"' || c == '\\') {
      AppendJsonEscape(out, static_cast<char>(c));
    } else if (style_.ascii_only && c > 0x7E && c < 0x10000) {
      AppendUnit(c);
    } else if (style_.ascii_only && c >= 0x10000) {
      AppendUnit(0xD800 + ((c - 0x10000) >> 10));
      AppendUnit(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      AppendUtf8(out, c);
    }
  }

  void AppendString(std::string_view text) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = CodePointAt(text, i);
      AppendCharacter(c.value);
      i += c.length;
    }
    out += '"';
  }

  void AppendNewline(int level) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
  }

  Status AppendList(const std::vector<Value>& items, int level) {
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      AppendNewline(level + 1);
      RETURN_IF_ERROR(Append(items[i], level + 1));
    }
    if (!items.empty()) AppendNewline(level);
    out += ']';
    return OkStatus();
  }

  Status AppendDict(const Dict& dict, int level) {
    std::vector<size_t> order(dict.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& [key, unused] : dict.entries()) keys.push_back(key);
      ASSIGN_OR_RETURN(order, SortedOrder(state_, keys, SortDirection::kAscending));
    }
    out += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.entries()[order[i]];
      if (i > 0) out += style_.item_separator;
      AppendNewline(level + 1);
      RETURN_IF_ERROR(AppendKey(key));
      out += style_.key_separator;
      RETURN_IF_ERROR(Append(value, level + 1));
    }
    if (dict.size() > 0) AppendNewline(level);
    out += '}';
    return OkStatus();
  }

  // Keys that are no text are written as text.
  Status AppendKey(const Value& key) {
    if (key.is_string()) {
      AppendString(key.string());
      return OkStatus();
    }
    out += '"';
    RETURN_IF_ERROR(Append(key, 0));
    out += '"';
    return OkStatus();
  }

  State& state_;
  const JsonStyle& style_;
};

}  // namespace

Result<Value> ParseJson(std::string_view json) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(json);
  simdjson::error_code error = parser.allocate(json.size(), kMaxJsonDepth);
  simdjson::dom::element root;
  if (!error) error = parser.parse(padded).get(root);
  if (!error) return FromElement(root);
  return Error(ErrorCode::kInvalidArgument, "invalid JSON: {}", simdjson::error_message(error));
}

Result<Value> ToJson(State& state, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(state, style);
  RETURN_IF_ERROR(printer.Append(value, 0));
  return state.NewString(std::move(printer.out));
}

}  // namespace hayate::text::jinja
