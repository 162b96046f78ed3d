#pragma once
// The parts of an answer, as they become certain. Joined by kind and call they do not depend on how
// the text was cut into pieces.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayate::text {

enum class AnswerPart : uint8_t {
  kReasoning,
  kContent,
  kCallName,       // a tool call begins; the text is the function's name
  kCallArguments,  // a piece of its arguments, a JSON object in the end
};

struct AnswerEvent {
  AnswerPart part = AnswerPart::kContent;
  std::string text;
  int32_t call = -1;  // of the call parts: 0, 1, … in order
};

// Appends `text`, joined to the last event where that has the same part and call.
inline void AddEvent(std::vector<AnswerEvent>& events, AnswerPart part, std::string_view text,
                     int32_t call = -1) {
  const bool joins = !events.empty() && events.back().part == part && events.back().call == call &&
                     part != AnswerPart::kCallName;
  if (joins) {
    events.back().text += text;
  } else if (!text.empty()) {
    events.push_back({part, std::string(text), call});
  }
}

}  // namespace hayate::text
