// A name and a tag for each parameter. The tags become a JSON object: values of string parameters
// are quoted and stream, other values stand as they are where they are JSON.

#include <array>

#include "text/dialect/call_name.h"
#include "text/dialect/call_reader.h"
#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

class TaggedCallReader final : public CallReader {
 public:
  explicit TaggedCallReader(const ToolDialect& dialect)
      : dialect_(dialect), tags_(dialect.parameters), name_(dialect.name_end) {}

  Step Push(char byte, CallSink& sink) override {
    switch (place_) {
      case Place::kName: {
        const Step step = name_.Push(byte);
        if (step != Step::kDone) return step;
        if (!sink.Knows(name_.name())) return Step::kReject;
        sink.Begin(name_.name());
        sink.Arguments("{");
        place_ = Place::kBetween;
        return Step::kMore;
      }
      case Place::kBetween:
        return PushBetween(byte, sink);
      case Place::kKey:
        return PushKey(byte, sink);
      case Place::kType:
        return PushType(byte, sink);
      case Place::kValue:
        return PushValue(byte, sink);
    }
    return Step::kBad;
  }

 private:
  enum class Place : uint8_t { kName, kBetween, kKey, kType, kValue };

  Step PushBetween(char byte, CallSink& sink) {
    if (held_.empty() && IsBlank(byte)) return Step::kMore;
    held_ += byte;
    if (held_ == tags_.begin) {
      held_.clear();
      key_.clear();
      place_ = Place::kKey;
      return Step::kMore;
    }
    if (held_ == dialect_.call_end) {
      sink.Arguments("}");
      return Step::kDone;
    }
    const bool may_go_on = tags_.begin.starts_with(held_) || dialect_.call_end.starts_with(held_);
    return may_go_on ? Step::kMore : Step::kBad;
  }

  Step PushKey(char byte, CallSink& sink) {
    key_ += byte;
    if (key_.size() > kMaxCallName) return Step::kBad;
    if (!key_.ends_with(tags_.key_end)) return Step::kMore;
    key_.resize(key_.size() - tags_.key_end.size());
    if (tags_.typed) {
      place_ = Place::kType;
    } else {
      BeginValue(sink.IsString(name_.name(), key_), sink);
    }
    return Step::kMore;
  }

  // ` string="true">`
  Step PushType(char byte, CallSink& sink) {
    held_ += byte;
    for (const bool is_string : {true, false}) {
      const std::string_view attribute = is_string ? " string=\"true\">" : " string=\"false\">";
      if (held_ == attribute) {
        held_.clear();
        BeginValue(is_string, sink);
        return Step::kMore;
      }
      if (attribute.starts_with(held_)) return Step::kMore;
    }
    return Step::kBad;
  }

  void BeginValue(bool is_string, CallSink& sink) {
    is_string_ = is_string;
    value_.clear();
    at_start_ = true;
    place_ = Place::kValue;
    std::string head = first_ ? "\"" : ", \"";
    AppendEscaped(head, key_);
    head += is_string ? "\": \"" : "\": ";
    sink.Arguments(head);
    first_ = false;
  }

  Step PushValue(char byte, CallSink& sink) {
    held_ += byte;
    const std::array<std::string_view, 1> markers = {tags_.end};
    const MarkerPlace place = FindMarker(held_, markers);
    size_t certain = place.begin;
    // A line end in front of the end tag may belong to it.
    if (tags_.trims_newlines && certain > 0 && held_[certain - 1] == '\n' &&
        (place.marker.empty() || certain < held_.size())) {
      --certain;
    }
    Take(std::string_view(held_).substr(0, certain), sink);
    if (!place.marker.empty()) {
      held_.clear();
      EndValue(sink);
      return Step::kMore;
    }
    held_.erase(0, certain);
    return Step::kMore;
  }

  void Take(std::string_view text, CallSink& sink) {
    if (text.empty()) return;
    if (at_start_ && tags_.trims_newlines && text.front() == '\n') text.remove_prefix(1);
    at_start_ = false;
    if (!is_string_) {
      value_ += text;
      return;
    }
    std::string escaped;
    AppendEscaped(escaped, text);
    sink.Arguments(escaped);
  }

  void EndValue(CallSink& sink) {
    place_ = Place::kBetween;
    if (is_string_) return sink.Arguments("\"");
    if (IsJsonValue(value_)) return sink.Arguments(value_);
    std::string text = "\"";
    AppendEscaped(text, value_);
    sink.Arguments(text + "\"");
  }

  const ToolDialect& dialect_;
  const ParameterTags& tags_;
  CallName name_;
  Place place_ = Place::kName;
  std::string held_, key_, value_;
  bool first_ = true;     // no parameter so far
  bool at_start_ = true;  // of a value
  bool is_string_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakeTaggedCallReader(const ToolDialect& dialect) {
  return std::make_unique<TaggedCallReader>(dialect);
}

}  // namespace hayate::text
