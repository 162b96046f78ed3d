#include "text/dialect/tool_parser.h"

#include <algorithm>
#include <utility>

#include "text/dialect/marker_search.h"

namespace hayate::text {

ToolParser::ToolParser(const AnswerFormat& format) : format_(format), dialect_(*format.tools) {}

void ToolParser::Feed(std::string_view text, std::vector<AnswerEvent>& events) {
  events_ = &events;
  for (const char byte : text) Push(byte);
}

void ToolParser::Push(char byte) {
  switch (place_) {
    case Place::kStart:
      return PushStart(byte);
    case Place::kText:
      return PushText(byte);
    case Place::kBetween:
      return PushBetween(byte);
    case Place::kCall:
      return PushCall(byte);
  }
}

void ToolParser::Finish(std::vector<AnswerEvent>& events) {
  events_ = &events;
  switch (place_) {
    case Place::kStart:
    case Place::kText:
      Content(std::exchange(held_, {}));
      break;
    case Place::kBetween:
      raw_ += std::exchange(held_, {});
      // Fillers after a call are no content; an opener without a call is.
      if (calls_ == 0) Content(std::exchange(raw_, {}));
      break;
    case Place::kCall:
      if (!call_begun_) Content(std::exchange(raw_, {}));
      break;
  }
  if (calls_ == 0) AddEvent(*events_, AnswerPart::kContent, std::exchange(blanks_, {}));
}

// The answer's first bytes: calls may stand there without an opener.
void ToolParser::PushStart(char byte) {
  if (IsBlank(byte)) {
    held_ += byte;
    return;
  }
  const std::string lead = std::exchange(held_, {});
  if (dialect_.bare.find(byte) == std::string_view::npos) {
    place_ = Place::kText;
    for (const char blank : lead) Push(blank);
    return Push(byte);
  }
  raw_ = lead;
  place_ = Place::kBetween;
  Push(byte);
}

void ToolParser::PushText(char byte) {
  held_ += byte;
  const MarkerPlace place = FindMarker(held_, dialect_.openers);
  Content(std::string_view(held_).substr(0, place.begin));
  if (place.marker.empty()) {
    held_.erase(0, place.begin);
    return;
  }
  held_.clear();
  raw_ = std::exchange(blanks_, {});
  raw_ += place.marker;
  place_ = Place::kBetween;
}

// `held` is the first byte, or all, of what stands before a call's own text.
bool ToolParser::CallBegins(std::string_view held) const {
  if (!dialect_.call_begin.empty()) return held == dialect_.call_begin;
  if (dialect_.syntax == CallSyntax::kJson) return held == "{";
  const char first = held.front();
  const bool letter =
      (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first == '_';
  return letter || (held == "{" && dialect_.syntax == CallSyntax::kNamed);
}

std::unique_ptr<CallReader> ToolParser::MakeReader(std::string_view held) const {
  switch (dialect_.syntax) {
    case CallSyntax::kJson:
      return MakeJsonCallReader();
    case CallSyntax::kNamed:
      // Mistral's older form is a list of objects.
      return held == "{" ? MakeJsonCallReader() : MakeNamedCallReader(dialect_.name_end);
    case CallSyntax::kTagged:
      return MakeTaggedCallReader(dialect_);
    case CallSyntax::kPythonic:
    case CallSyntax::kHarmony:
      return MakePythonicCallReader();
  }
  return nullptr;
}

void ToolParser::PushBetween(char byte) {
  if (held_.empty() && IsBlank(byte)) {
    raw_ += byte;
    return;
  }
  held_ += byte;
  if (CallBegins(held_)) {
    const std::string begin = std::exchange(held_, {});
    reader_ = MakeReader(begin);
    call_begun_ = false;
    place_ = Place::kCall;
    if (begin == dialect_.call_begin) {
      raw_ += begin;
    } else {
      PushCall(byte);  // the byte is the call's own
    }
    return;
  }
  // The longest filler counts, so one that may grow into a longer one waits.
  size_t filler = 0;
  bool grows = dialect_.call_begin.starts_with(held_);
  const auto consider = [&](std::string_view marker) {
    if (marker.empty()) return;
    grows |= marker.size() > held_.size() && marker.starts_with(held_);
    if (held_.starts_with(marker)) filler = std::max(filler, marker.size());
  };
  std::ranges::for_each(dialect_.fillers, consider);
  std::ranges::for_each(dialect_.openers, consider);
  if (grows) return;
  if (filler > 0) {
    raw_ += held_.substr(0, filler);
  } else {
    // After calls, fillers and white space are no content.
    if (calls_ > 0) raw_.clear();
    Content(std::exchange(raw_, {}));
    place_ = Place::kText;
  }
  const std::string rest = std::exchange(held_, {}).substr(filler);
  for (const char c : rest) Push(c);
}

void ToolParser::PushCall(char byte) {
  const CallReader::Step step = reader_->Push(byte, *this);
  if (step == CallReader::Step::kMore) {
    if (!call_begun_) raw_ += byte;
    return;
  }
  if (step == CallReader::Step::kDone) {
    raw_.clear();
    place_ = Place::kBetween;
    return;
  }
  if (step == CallReader::Step::kReject) raw_ += byte;
  GiveUp();
  if (step == CallReader::Step::kBad) Push(byte);
}

void ToolParser::GiveUp() {
  place_ = Place::kText;
  if (call_begun_) raw_.clear();
  Content(std::exchange(raw_, {}));
}

bool ToolParser::Knows(std::string_view name) const {
  return std::any_of(format_.signatures.begin(), format_.signatures.end(),
                     [&](const ToolSignature& tool) { return tool.name == name; });
}

bool ToolParser::IsString(std::string_view name, std::string_view parameter) const {
  for (const ToolSignature& tool : format_.signatures) {
    if (tool.name == name) return tool.string_parameters.contains(parameter);
  }
  return false;
}

void ToolParser::Begin(std::string_view name) {
  call_begun_ = true;
  after_call_ = true;
  blanks_.clear();
  events_->push_back({AnswerPart::kCallName, std::string(name), calls_++});
}

void ToolParser::Arguments(std::string_view json) {
  AddEvent(*events_, AnswerPart::kCallArguments, json, calls_ - 1);
}

// White space in front of a call is dropped, so it waits.
void ToolParser::Content(std::string_view text) {
  if (text.empty()) return;
  blanks_ += text;
  const size_t last = blanks_.find_last_not_of(kBlanks);
  if (last == std::string::npos) return;
  if (after_call_) blanks_.erase(0, blanks_.find_first_not_of(kBlanks));
  after_call_ = false;
  const size_t certain = blanks_.find_last_not_of(kBlanks) + 1;
  AddEvent(*events_, AnswerPart::kContent, std::string_view(blanks_).substr(0, certain));
  blanks_.erase(0, certain);
}

}  // namespace hayate::text
