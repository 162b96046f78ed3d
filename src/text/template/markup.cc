#include "text/template/markup.h"

namespace hayate::text::jinja {

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Result<Value> ConcatenateMarkup(State& state, const Value& left, const Value& right) {
  std::string joined;
  for (const Value* part : {&left, &right}) {
    joined += part->is_markup() ? part->string() : EscapeHtml(part->string());
  }
  RETURN_IF_ERROR(state.CheckStringSize(joined.size()));
  RETURN_IF_ERROR(state.Charge(joined.size()));
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(joined.size() / 256)));
  return Value::Markup(std::move(joined));
}

}  // namespace hayate::text::jinja
