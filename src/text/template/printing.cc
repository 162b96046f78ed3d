#include "text/template/printing.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "text/template/objects.h"
#include "text/template/string_literal.h"

namespace hayate::text::jinja {
namespace {

Status AppendItems(State& state, const Sequence& sequence, std::string& out) {
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out += ", ";
    first = false;
    RETURN_IF_ERROR(AppendRepr(state, item, out));
  }
  return OkStatus();
}

Status AppendSequence(State& state, const Sequence& sequence, std::string& out) {
  switch (sequence.type) {
    case SequenceType::kList:
      out += '[';
      RETURN_IF_ERROR(AppendItems(state, sequence, out));
      out += ']';
      break;
    case SequenceType::kTuple:
      out += '(';
      RETURN_IF_ERROR(AppendItems(state, sequence, out));
      out += sequence.items.size() == 1 ? ",)" : ")";
      break;
    case SequenceType::kView:
      out += sequence.label;
      out += "([";
      RETURN_IF_ERROR(AppendItems(state, sequence, out));
      out += "])";
      break;
    case SequenceType::kRange:
      out += sequence.label;
      break;
    case SequenceType::kIterator:
      out += "<generator object>";
      break;
  }
  return OkStatus();
}

Status AppendDict(State& state, const std::vector<Dict::Entry>& entries, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) out += ", ";
    first = false;
    RETURN_IF_ERROR(AppendRepr(state, key, out));
    out += ": ";
    RETURN_IF_ERROR(AppendRepr(state, value, out));
  }
  out += '}';
  return OkStatus();
}

// A namespace may hold itself; its contents are not printed.
void AppendObject(const Object& object, std::string& out) {
  if (const Macro* macro = object.As<Macro>()) {
    fmt::format_to(std::back_inserter(out), "<Macro '{}'>", macro->definition->name);
  } else if (const Loop* loop = object.As<Loop>()) {
    fmt::format_to(std::back_inserter(out), "<LoopContext {}/{}>", loop->index0 + 1,
                   loop->items->items.size());
  } else {
    fmt::format_to(std::back_inserter(out), "<{}>", ObjectTypeName(object));
  }
}

}  // namespace

void AppendFloat(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  const size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", value);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

Status AppendRepr(State& state, const Value& value, std::string& out) {
  RETURN_IF_ERROR(state.Step());
  RETURN_IF_ERROR(state.CheckStringSize(out.size()));
  switch (value.kind()) {
    case Value::Kind::kNone:
      out += "None";
      break;
    case Value::Kind::kUndefined:
      out += "Undefined";
      break;
    case Value::Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      break;
    case Value::Kind::kInt:
      fmt::format_to(std::back_inserter(out), "{}", value.as_int());
      break;
    case Value::Kind::kFloat:
      AppendFloat(out, value.as_double());
      break;
    case Value::Kind::kString:
      AppendQuoted(out, value.string());
      break;
    case Value::Kind::kSequence:
      return AppendSequence(state, value.sequence(), out);
    case Value::Kind::kDict:
      return AppendDict(state, value.dict().entries(), out);
    case Value::Kind::kObject:
      AppendObject(value.object(), out);
      break;
  }
  return OkStatus();
}

Status AppendText(State& state, const Value& value, std::string& out) {
  if (value.is_undefined()) return OkStatus();
  if (!value.is_string()) return AppendRepr(state, value, out);
  RETURN_IF_ERROR(state.CheckStringSize(out.size() + value.string().size()));
  RETURN_IF_ERROR(state.Step(1 + static_cast<int64_t>(value.string().size() / 256)));
  out += value.string();
  return OkStatus();
}

Result<std::string> ToText(State& state, const Value& value) {
  std::string text;
  RETURN_IF_ERROR(AppendText(state, value, text));
  return text;
}

}  // namespace hayate::text::jinja
