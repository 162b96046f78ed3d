#include "text/call_shape.h"

#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace hayate::text {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr std::string_view kName = "look_up_moons", kKey = "planet_name", kText = "Iapetus";
// A turn is short; a template that needs more is judged by its text.
constexpr jinja::RenderLimits kLimits = {.max_steps = 100'000,
                                         .max_output_bytes = size_t{1} << 20,
                                         .max_memory_bytes = size_t{16} << 20};

Value Text(std::string_view text) { return Value::String(std::string(text)); }

Value Turn(CallShape shape) {
  Value arguments = shape.argument_objects
                        ? Value::FromDict(Dict{{std::string(kKey), Text(kText)}})
                        : Text("{\"" + std::string(kKey) + "\": \"" + std::string(kText) + "\"}");
  Value function =
      Value::FromDict(Dict{{"name", Text(kName)}, {"arguments", std::move(arguments)}});
  // Mistral's templates want ids of nine letters.
  Value call = Value::FromDict(
      Dict{{"id", Text("call00001")}, {"type", Text("function")}, {"function", function}});
  Value question = Value::FromDict(Dict{{"role", Text("user")}, {"content", Text("Which?")}});
  Value turn = Value::FromDict(Dict{{"role", Text("assistant")},
                                    {"content", shape.none_content ? Value::None() : Text("")},
                                    {"tool_calls", Value::List({std::move(call)})}});
  Value result = Value::FromDict(Dict{{"role", Text("tool")},
                                      {"content", Text("62")},
                                      {"name", Text(kName)},
                                      {"tool_call_id", Text("call00001")}});
  return Value::List({std::move(question), std::move(turn), std::move(result)});
}

// Name, key and value are there, in no notation but JSON's (or a format of the template's own).
bool Arrives(const ChatTemplate& chat, CallShape shape) {
  const Result<std::string> prompt = chat.Render({.messages = Turn(shape)}, {.limits = kLimits});
  if (!prompt.ok()) return false;
  const auto has = [&](const std::string& text) { return prompt->find(text) != std::string::npos; };
  const std::string key(kKey);
  const bool whole = has(std::string(kName)) && has(key) && has(std::string(kText));
  const bool in_python = has("{'" + key + "'"), escaped = has("\\\"" + key);
  return whole && !in_python && !escaped;
}

// Whether the source says that the arguments are turned into text, by tojson or item by item.
bool SerialisesArguments(std::string_view source) {
  std::string dense;
  for (const char c : source) {
    if (c != ' ' && c != '\n') dense += c;
  }
  for (const char* habit : {"arguments|tojson", "arguments']|tojson", "arguments.items()",
                            "arguments|items", "function|tojson", "tool_call|tojson"}) {
    if (dense.find(habit) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

CallShape FindCallShape(const ChatTemplate& chat) {
  for (const bool none_content : {false, true}) {
    for (const bool argument_objects : {true, false}) {
      const CallShape shape = {.argument_objects = argument_objects, .none_content = none_content};
      if (Arrives(chat, shape)) return shape;
    }
  }
  return {.argument_objects = SerialisesArguments(chat.source())};
}

}  // namespace hayate::text
