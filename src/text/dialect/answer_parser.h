#pragma once
// Splits an answer's text into thinking, content and tool calls while it arrives. Whatever is no
// call after all comes out as content, character for character. One per answer; not thread-safe.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialect/answer_event.h"
#include "text/dialect/dialects.h"

namespace hayate::text {

// What a parser must know of a tool.
struct ToolSignature {
  std::string name;
  // Parameters whose schema is a string: a tag's text is their value as it stands.
  std::set<std::string, std::less<>> string_parameters;
};

struct AnswerFormat {
  const ReasoningDialect* reasoning = nullptr;  // null: no thinking is told apart
  bool starts_inside = false;                   // the prompt has opened the thinking
  const ToolDialect* tools = nullptr;           // null: no call is looked for
  std::vector<ToolSignature> signatures;        // calls of other names are content

  bool parses() const { return reasoning != nullptr || tools != nullptr; }
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual void Feed(std::string_view text, std::vector<AnswerEvent>& events) = 0;
  // The end of the text: what is still held back comes out.
  virtual void Finish(std::vector<AnswerEvent>& events) = 0;
  // What comes next is thinking, as far as is known.
  virtual bool reasoning() const = 0;
};

// The format outlives the parser.
std::unique_ptr<AnswerParser> MakeAnswerParser(const AnswerFormat& format);

// Control tokens by whose text the format's parts are told apart: these must show in the text.
std::vector<std::string> MarkersOf(const ReasoningDialect* reasoning, const ToolDialect* tools);

// What the end of a prompt says about the answer's thinking.
enum class ThinkingPlace : uint8_t {
  kNone,      // switched off: what follows is the answer proper
  kMayBegin,  // the answer may open it
  kInside,    // the prompt has opened it
};
ThinkingPlace PlaceOfThinking(const ReasoningDialect& dialect, std::string_view prompt);

}  // namespace hayate::text
