#include "text/dialect/reasoning_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/dialect/marker_search.h"

namespace hayate::text {

ReasoningParser::ReasoningParser(const AnswerFormat& format, std::unique_ptr<AnswerParser> next)
    : dialect_(*format.reasoning), next_(std::move(next)), starts_inside_(format.starts_inside) {
  // So that the very first token counts as thinking.
  if (starts_inside_) place_ = Place::kInside;
}

void ReasoningParser::Feed(std::string_view text, std::vector<AnswerEvent>& events) {
  held_ += text;
  if (place_ == Place::kStart) PushStart();
  if (place_ == Place::kInside) PushInside(events);
  if (place_ == Place::kGap) {
    held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
    if (!held_.empty()) place_ = Place::kAfter;
  }
  if (place_ == Place::kAfter) PassOn(std::exchange(held_, {}), events);
}

void ReasoningParser::PushStart() {
  const size_t begin = held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return;
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (rest.starts_with(dialect_.begin)) {
    held_.erase(0, begin + dialect_.begin.size());
    place_ = Place::kInside;
  } else if (!dialect_.begin.starts_with(rest)) {
    place_ = Place::kAfter;  // it answers at once
  }
}

void ReasoningParser::PushInside(std::vector<AnswerEvent>& events) {
  const std::array<std::string_view, 2> markers = {dialect_.end, dialect_.begin};
  const std::string held = std::exchange(held_, {});
  for (size_t begin = 0;;) {
    const std::string_view text = std::string_view(held).substr(begin);
    const MarkerPlace place = FindMarker(text, markers);
    Think(text.substr(0, place.begin), events);
    begin += place.begin + place.marker.size();
    if (!place.marker.empty() && place.marker != dialect_.end) {
      // Some models open the thinking again that the prompt has opened.
      if (thought_) Think(place.marker, events);
      continue;
    }
    held_ = held.substr(begin);
    if (place.marker.empty()) return;
    place_ = Place::kGap;
    blanks_.clear();
    return;
  }
}

void ReasoningParser::Think(std::string_view text, std::vector<AnswerEvent>& events) {
  blanks_ += text;
  const size_t last = blanks_.find_last_not_of(kBlanks);
  if (last == std::string::npos) return;
  if (!thought_) blanks_.erase(0, blanks_.find_first_not_of(kBlanks));
  thought_ = true;
  const size_t certain = blanks_.find_last_not_of(kBlanks) + 1;
  AddEvent(events, AnswerPart::kReasoning, std::string_view(blanks_).substr(0, certain));
  blanks_.erase(0, certain);
}

void ReasoningParser::PassOn(std::string_view text, std::vector<AnswerEvent>& events) {
  if (next_ != nullptr) return next_->Feed(text, events);
  AddEvent(events, AnswerPart::kContent, text);
}

void ReasoningParser::Finish(std::vector<AnswerEvent>& events) {
  std::string rest = std::exchange(held_, {});
  if (place_ == Place::kInside) {
    Think(rest, events);
  } else if (place_ == Place::kStart) {
    PassOn(rest, events);
  }
  if (next_ != nullptr) next_->Finish(events);
}

}  // namespace hayate::text
