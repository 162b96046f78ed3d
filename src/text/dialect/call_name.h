#pragma once
// A call's name up to the marker that ends it.

#include <optional>
#include <string>
#include <string_view>

#include "text/dialect/call_reader.h"

namespace hayate::text {

class CallName {
 public:
  explicit CallName(std::string_view end) : end_(end) {}

  // kDone: name() is whole.
  CallReader::Step Push(char byte);
  const std::string& name() const { return name_; }

 private:
  // Mistral writes the call's own id between name and arguments.
  static constexpr std::string_view kCallId = "[CALL_ID]";

  std::string_view end_;
  std::string name_;
  std::string tail_;  // what follows the name
};

}  // namespace hayate::text
