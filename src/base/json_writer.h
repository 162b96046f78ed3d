#pragma once
// An append-only JSON writer: commas and escaping are its business, structure is the caller's.
//   JsonWriter w(out); w.BeginObject(); w.Key("id"); w.String(id); w.EndObject();
// Invalid UTF-8 in strings is replaced by U+FFFD, so the output is always valid JSON.

#include <cstdint>
#include <string>
#include <string_view>

namespace hayate {

class JsonWriter {
 public:
  // Appends to `out`, which outlives the writer.
  explicit JsonWriter(std::string& out) : out_(out) {}

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }
  void Key(std::string_view key);

  void String(std::string_view value);
  void Int(int64_t value);
  void Uint(uint64_t value);
  // Shortest form that reads back equal; NaN and infinities become null, as JSON has none.
  void Double(double value);
  void Float(float value);
  void Bool(bool value);
  void Null();
  // A value that is JSON already.
  void Raw(std::string_view json);

  // Key and value in one call.
  void Field(std::string_view key, std::string_view value) { Key(key), String(value); }
  void Field(std::string_view key, const char* value) { Key(key), String(value); }
  void Field(std::string_view key, int value) { Key(key), Int(value); }
  void Field(std::string_view key, int64_t value) { Key(key), Int(value); }
  void Field(std::string_view key, uint64_t value) { Key(key), Uint(value); }
  void Field(std::string_view key, double value) { Key(key), Double(value); }
  void Field(std::string_view key, bool value) { Key(key), Bool(value); }
  void NullField(std::string_view key) { Key(key), Null(); }

 private:
  void Open(char bracket);
  void Close(char bracket);
  void Separate();

  std::string& out_;
  bool need_comma_ = false;
};

// Appends the escape of a character that a JSON string cannot hold as it is: a quote, a backslash,
// a control character.
void AppendJsonEscape(std::string& out, char c);
// Appends `text` as a JSON string literal with its quotes.
void AppendJsonString(std::string& out, std::string_view text);

}  // namespace hayate
