#include "api/choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hayate::api {

void ChoiceDelta::Append(ChoiceDelta next) {
  text += next.text;
  for (text::AnswerEvent& event : next.parts) {
    if (event.part == text::AnswerPart::kCallName) {
      parts.push_back(std::move(event));
    } else {
      text::AddEvent(parts, event.part, event.text, event.call);
    }
  }
  tokens.insert(tokens.end(), next.tokens.begin(), next.tokens.end());
  logprobs.insert(logprobs.end(), std::make_move_iterator(next.logprobs.begin()),
                  std::make_move_iterator(next.logprobs.end()));
  if (next.end) end = std::move(next.end);
}

Choice::Choice(const GenerationSpec& spec, const ServedModel& model, Prompt prompt)
    : spec_(spec),
      detokenizer_(model.tokenizer, {.skip_special = spec.skip_special,
                                     .position = text::TextPosition::kMiddle,
                                     .kept = spec.format.parses() ? &model.marker_ids : nullptr}),
      prompt_tokens_(prompt.tokens) {
  if (spec.stop_regexes) regex_matcher_.emplace(*spec.stop_regexes, spec.stop_text);
  if (spec.stop_strings) matcher_.emplace(*spec.stop_strings, spec.stop_text);
  auto format = std::make_unique<text::AnswerFormat>(spec.format);
  const bool thinks = spec.separate_reasoning && prompt.thinking != text::ThinkingPlace::kNone;
  if (!thinks) format->reasoning = nullptr;
  format->starts_inside = prompt.thinking == text::ThinkingPlace::kInside;
  if (!format->parses()) return;
  format_ = std::move(format);
  parser_ = text::MakeAnswerParser(*format_);
}

ChoiceDelta Choice::Push(TokenEvent& event) {
  ChoiceDelta delta;
  if (ended_) return delta;
  cached_tokens_ = event.cached_tokens;
  draft_counts_ = {event.num_verifies, event.num_drafts, event.num_accepted_drafts};
  for (TokenLogprob& logprob : event.prompt_logprobs) {
    logprob.top.resize(std::min(logprob.top.size(), spec_.NumPromptTop()));
    prompt_logprobs_.push_back(std::move(logprob));
  }
  if (hidden_.size() < event.hidden.size()) hidden_.resize(event.hidden.size(), 0.0f);
  for (size_t i = 0; i < event.hidden.size(); ++i) hidden_[i] += event.hidden[i];
  for (size_t i = 0; i < event.tokens.size() && !ended_; ++i) {
    const TokenId token = event.tokens[i];
    ++completion_tokens_;
    if (parser_ != nullptr && parser_->reasoning()) ++reasoning_tokens_;
    delta.tokens.push_back(token);
    const size_t begin = detokenised_;
    // The stop token ends the answer and is no part of its text, unless asked for.
    const bool is_stop = event.matched_stop && i + 1 == event.tokens.size();
    std::string text;
    if (!is_stop || spec_.stop_text == text::StopText::kKept) text = detokenizer_.Push(token);
    detokenised_ += text.size();
    if (i < event.logprobs.size()) {
      TakeScore(begin, std::move(event.logprobs[i]));
    }
    PushText(text, delta);
  }
  if (event.finish && !ended_) {
    ChoiceEnd end{.reason = *event.finish, .status = event.status};
    if (event.matched_stop) end.matched_stop = *event.matched_stop;
    const std::string rest = detokenizer_.Flush();
    detokenised_ += rest.size();
    PushText(rest, delta);
    if (!ended_) Finish(std::move(end), delta);
  }
  ReleaseLogprobs(delta);
  return delta;
}

void Choice::TakeScore(size_t begin, TokenLogprob logprob) {
  cumulative_logprob_ += static_cast<double>(logprob.logprob);
  if (!spec_.logprobs.enabled) return;  // only ranked by
  logprob.top.resize(std::min(logprob.top.size(), static_cast<size_t>(spec_.logprobs.num_top)));
  pending_.push_back({begin, detokenised_, std::move(logprob)});
}

void Choice::PushText(std::string_view text, ChoiceDelta& delta) {
  const bool may_stop = completion_tokens_ >= spec_.sampling.min_new_tokens;
  if (!may_stop || (!matcher_ && !regex_matcher_)) return PassOn(text, delta);
  std::optional<std::string> stop;
  std::string passed(text);
  if (regex_matcher_) {
    text::StopMatcher::Output output = regex_matcher_->Feed(passed);
    passed = std::move(output.text);
    if (output.matched) stop = spec_.stop_regexes->patterns()[*output.matched];
  }
  if (matcher_) {
    // A stop string in the text before an expression's match stands before it.
    text::StopMatcher::Output output = matcher_->Feed(passed);
    passed = std::move(output.text);
    if (stop && !output.matched) passed += matcher_->Flush();
    if (output.matched) stop = spec_.stop_strings->strings()[*output.matched];
  }
  PassOn(passed, delta);
  if (stop) Stop(*std::move(stop), delta);
}

void Choice::PassOn(std::string_view text, ChoiceDelta& delta) {
  const size_t begin = delta.text.size();
  delta.text += text;
  passed_on_ += text.size();
  Divide(begin, delta);
}

void Choice::Stop(std::string matched, ChoiceDelta& delta) {
  ended_ = true;
  FinishParts(delta);
  delta.end = ChoiceEnd{.reason = FinishReason::kStop,
                        .matched_stop = std::move(matched),
                        .called_tools = num_calls_ > 0};
}

void Choice::Finish(ChoiceEnd end, ChoiceDelta& delta) {
  std::string held = regex_matcher_ ? regex_matcher_->Flush() : "";
  if (matcher_) {
    text::StopMatcher::Output output = matcher_->Feed(held);
    if (output.matched) {
      PassOn(output.text, delta);
      return Stop(spec_.stop_strings->strings()[*output.matched], delta);
    }
    held = output.text + matcher_->Flush();
  }
  PassOn(held, delta);
  ended_ = true;
  FinishParts(delta);
  end.called_tools = num_calls_ > 0;
  delta.end = std::move(end);
}

void Choice::Divide(size_t begin, ChoiceDelta& delta) {
  if (parser_ == nullptr || begin == delta.text.size()) return;
  std::vector<text::AnswerEvent> events;
  parser_->Feed(std::string_view(delta.text).substr(begin), events);
  TakeParts(events, delta);
}

void Choice::FinishParts(ChoiceDelta& delta) {
  if (parser_ == nullptr) return;
  std::vector<text::AnswerEvent> events;
  parser_->Finish(events);
  TakeParts(events, delta);
  for (text::AnswerEvent& event : held_thinking_) delta.parts.push_back(std::move(event));
  held_thinking_.clear();
}

void Choice::TakeParts(std::vector<text::AnswerEvent>& events, ChoiceDelta& delta) {
  for (text::AnswerEvent& event : events) {
    if (event.part == text::AnswerPart::kCallName) ++num_calls_;
    if (event.part == text::AnswerPart::kReasoning && !spec_.stream_reasoning) {
      AddEvent(held_thinking_, event.part, event.text);
      continue;
    }
    if (!held_thinking_.empty()) {
      delta.parts.push_back(std::move(held_thinking_.front()));
      held_thinking_.clear();
    }
    if (event.part == text::AnswerPart::kCallName) {
      delta.parts.push_back(std::move(event));
    } else {
      AddEvent(delta.parts, event.part, event.text, event.call);
    }
  }
}

void Choice::ReleaseLogprobs(ChoiceDelta& delta) {
  while (!pending_.empty()) {
    PendingLogprob& front = pending_.front();
    // While text is held back its tokens wait with it. After a stop string, tokens that lie wholly
    // in what was cut off are dropped.
    const bool passed = front.end <= passed_on_;
    const bool cut = ended_ && front.begin >= passed_on_ && front.end > passed_on_;
    if (!passed && !ended_) return;
    if (!cut) delta.logprobs.push_back(std::move(front.logprob));
    pending_.pop_front();
  }
}

}  // namespace hayate::api
