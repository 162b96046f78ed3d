#include "text/dialect/answer_parser.h"

#include <algorithm>

#include "text/dialect/harmony_parser.h"
#include "text/dialect/marker_search.h"
#include "text/dialect/reasoning_parser.h"
#include "text/dialect/tool_parser.h"

namespace hayate::text {

std::unique_ptr<AnswerParser> MakeAnswerParser(const AnswerFormat& format) {
  const bool harmony = (format.reasoning != nullptr && format.reasoning->harmony) ||
                       (format.tools != nullptr && format.tools->syntax == CallSyntax::kHarmony);
  if (harmony) return std::make_unique<HarmonyParser>(format);
  std::unique_ptr<AnswerParser> parser;
  if (format.tools != nullptr) parser = std::make_unique<ToolParser>(format);
  if (format.reasoning == nullptr) return parser;
  return std::make_unique<ReasoningParser>(format, std::move(parser));
}

std::vector<std::string> MarkersOf(const ReasoningDialect* reasoning, const ToolDialect* tools) {
  std::vector<std::string> markers;
  const auto add = [&](std::string_view marker) {
    if (!marker.empty()) markers.emplace_back(marker);
  };
  if (reasoning != nullptr) {
    add(reasoning->begin);
    add(reasoning->end);
  }
  const bool harmony = (reasoning != nullptr && reasoning->harmony) ||
                       (tools != nullptr && tools->syntax == CallSyntax::kHarmony);
  if (harmony) {
    for (const char* marker : {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>",
                               "<|call|>", "<|constrain|>"}) {
      add(marker);
    }
  }
  if (tools == nullptr) return markers;
  std::ranges::for_each(tools->openers, add);
  std::ranges::for_each(tools->fillers, add);
  add(tools->name_end);
  add(tools->call_end);
  // Tokens inside longer markers.
  for (const char* marker : {"｜DSML｜", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                             "<｜tool▁call▁end｜>", "[CALL_ID]"}) {
    add(marker);
  }
  return markers;
}

ThinkingPlace PlaceOfThinking(const ReasoningDialect& dialect, std::string_view prompt) {
  if (dialect.harmony) return ThinkingPlace::kMayBegin;
  const size_t last = prompt.find_last_not_of(kBlanks);
  prompt = prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (prompt.ends_with(dialect.begin)) return ThinkingPlace::kInside;
  if (prompt.ends_with(dialect.end)) return ThinkingPlace::kNone;
  return dialect.start == ThinkingStart::kInside ? ThinkingPlace::kInside
                                                 : ThinkingPlace::kMayBegin;
}

}  // namespace hayate::text
