#include "api/block_formatter.h"

#include <utility>

namespace hayate::api {

using text::AnswerPart;

void BlockFormatter::Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage&,
                           std::string& out) {
  Take(view, delta, &out);
}

void BlockFormatter::Gather(const ChoiceView& view, ChoiceDelta delta) {
  Take(view, delta, nullptr);
}

void BlockFormatter::Take(const ChoiceView& view, const ChoiceDelta& delta, std::string* out) {
  // Scores belong to the delta: its first content has them.
  const std::vector<TokenLogprob>* scores =
      head_.spec->logprobs.enabled ? &delta.logprobs : nullptr;
  const auto take = [&](const text::AnswerEvent& event) {
    const bool content = event.part == AnswerPart::kContent;
    TakePart(event, content ? scores : nullptr, out);
    if (content) scores = nullptr;
  };
  if (view.choice->divides()) {
    for (const text::AnswerEvent& event : delta.parts) take(event);
  } else if (!delta.text.empty()) {
    take({AnswerPart::kContent, delta.text});
  }
  if (!delta.end) return;
  end_ = *delta.end;
  CloseBlock(out);
}

void BlockFormatter::TakePart(const text::AnswerEvent& event,
                              const std::vector<TokenLogprob>* scores, std::string* out) {
  const bool call = event.call >= 0;
  const AnswerPart kind = call ? AnswerPart::kCallName : event.part;
  const bool goes_on = open_ && blocks_.back().kind == kind && event.part != AnswerPart::kCallName;
  if (!goes_on) {
    CloseBlock(out);
    blocks_.push_back({.kind = kind, .call = event.call});
    if (event.part == AnswerPart::kCallName) blocks_.back().name = event.text;
    open_ = true;
    if (out != nullptr) BeginBlock(blocks_.size() - 1, blocks_.back(), *out);
    if (event.part == AnswerPart::kCallName) return;
  }
  AnswerBlock& block = blocks_.back();
  block.text += event.text;
  if (scores != nullptr) block.scores.insert(block.scores.end(), scores->begin(), scores->end());
  if (out != nullptr) ExtendBlock(blocks_.size() - 1, block, {event.text, scores}, *out);
}

void BlockFormatter::CloseBlock(std::string* out) {
  if (!open_) return;
  open_ = false;
  if (out != nullptr) EndBlock(blocks_.size() - 1, blocks_.back(), *out);
}

}  // namespace hayate::api
