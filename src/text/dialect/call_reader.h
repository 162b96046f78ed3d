#pragma once
// Reads one tool call, byte by byte, in one of the syntaxes of dialects.h.

#include <memory>
#include <string>
#include <string_view>

#include "text/dialect/dialects.h"

namespace hayate::text {

// Where a reader's findings go. A call begins once; its arguments follow in pieces that join to a
// JSON object.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual bool Knows(std::string_view name) const = 0;
  virtual bool IsString(std::string_view name, std::string_view parameter) const = 0;
  virtual void Begin(std::string_view name) = 0;
  virtual void Arguments(std::string_view json) = 0;
};

class CallReader {
 public:
  enum class Step {
    kMore,
    kDone,    // this was the call's last byte
    kBad,     // this byte cannot belong to a call: it is read again as text
    kReject,  // with this byte it turns out to be no call
  };
  virtual ~CallReader() = default;
  virtual Step Push(char byte, CallSink& sink) = 0;
};

std::unique_ptr<CallReader> MakeJsonCallReader();
std::unique_ptr<CallReader> MakeNamedCallReader(std::string_view name_end);
std::unique_ptr<CallReader> MakeTaggedCallReader(const ToolDialect& dialect);
std::unique_ptr<CallReader> MakePythonicCallReader();

// Longer names are no names.
inline constexpr size_t kMaxCallName = 256;

// The text of a JSON string literal, quotes included; nothing when it is none.
std::string DecodeJsonString(std::string_view literal, bool& ok);
// Appends `text` as it stands inside a JSON string. `text` is UTF-8, cut anywhere.
void AppendEscaped(std::string& out, std::string_view text);
// Whether `text` is one JSON value.
bool IsJsonValue(std::string_view text);

}  // namespace hayate::text
