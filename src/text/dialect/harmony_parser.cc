#include "text/dialect/harmony_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::array<std::string_view, 6> kMarkers = {kMessage,  kStart,       kChannel,
                                                      "<|end|>", "<|return|>", "<|call|>"};
// A header is a few words; more than this is text.
constexpr size_t kMaxHeader = 1024;

// Else it is text outside any message, from a model that leaves its format.
bool MayBeHeader(std::string_view text) {
  constexpr std::string_view kRecipient = "to=";
  if (text.size() > kMaxHeader) return false;
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.starts_with(kStart) || text.starts_with(kChannel) || text.starts_with(kRecipient) ||
         kRecipient.starts_with(text);
}

std::string_view WordAfter(std::string_view text, std::string_view prefix) {
  const size_t at = text.find(prefix);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + prefix.size());
  return text.substr(0, text.find_first_of(" <\t\r\n"));
}

}  // namespace

void HarmonyParser::Feed(std::string_view text, std::vector<AnswerEvent>& events) {
  const std::string held = std::exchange(held_, {}).append(text);
  for (size_t begin = 0;;) {
    const std::string_view rest = std::string_view(held).substr(begin);
    const MarkerPlace place = FindMarker(rest, kMarkers);
    const std::string_view plain = rest.substr(0, place.begin);
    if (in_body_) {
      Body(plain, events);
    } else {
      header_ += plain;
      if (!MayBeHeader(header_)) {
        part_ = AnswerPart::kContent;
        in_body_ = true;
        Body(std::exchange(header_, {}), events);
      }
    }
    const std::string_view marker = place.marker;
    begin += place.begin + marker.size();
    if (marker.empty()) {
      held_ = held.substr(begin);
      return;
    }
    if (marker == kMessage) {
      if (!in_body_) BeginMessage(events);
    } else if (marker == kStart || marker == kChannel) {
      if (in_body_) header_.clear();
      in_body_ = false;
      header_ += marker;
    } else {
      in_body_ = false;
      header_.clear();
    }
  }
}

void HarmonyParser::BeginMessage(std::vector<AnswerEvent>& events) {
  const std::string header = std::exchange(header_, {});
  in_body_ = true;
  const std::string_view channel = WordAfter(header, kChannel);
  std::string_view name = WordAfter(header, "to=functions.");
  if (name.empty()) name = WordAfter(header, "to=");
  const bool known = std::any_of(format_.signatures.begin(), format_.signatures.end(),
                                 [&](const ToolSignature& tool) { return tool.name == name; });
  if (format_.tools != nullptr && known) {
    part_ = AnswerPart::kCallArguments;
    events.push_back({AnswerPart::kCallName, std::string(name), calls_++});
  } else if (channel == "analysis" && format_.reasoning != nullptr) {
    part_ = AnswerPart::kReasoning;
  } else {
    part_ = AnswerPart::kContent;
  }
}

void HarmonyParser::Body(std::string_view text, std::vector<AnswerEvent>& events) {
  AddEvent(events, part_, text, part_ == AnswerPart::kCallArguments ? calls_ - 1 : -1);
}

void HarmonyParser::Finish(std::vector<AnswerEvent>& events) {
  const std::string rest = std::exchange(header_, {}) + std::exchange(held_, {});
  const bool is_header = rest.find(kStart) == 0 || rest.find(kChannel) == 0;
  if (!in_body_ && is_header) return;
  if (!in_body_) part_ = AnswerPart::kContent;
  Body(rest, events);
}

}  // namespace hayate::text
