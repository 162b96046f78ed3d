#pragma once
// One answer in the making: tokens in, text out. Detokenises, watches for stop strings, keeps token
// log-probabilities in step with the text that has been passed on. Owner: the http thread of its
// exchange.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "core/token_event.h"
#include "text/detokenizer.h"
#include "text/dialect/answer_parser.h"
#include "text/stop_matcher.h"
#include "text/stop_regex.h"

namespace hayate::api {

// How an answer ended, as clients see it.
struct ChoiceEnd {
  FinishReason reason = FinishReason::kStop;
  std::variant<std::monostate, TokenId, std::string> matched_stop;  // id or string
  bool called_tools = false;
  Status status;  // with kAbort
};

// What one event added, or several in a row.
struct ChoiceDelta {
  std::string text;
  // The text in its parts, where the request has any; else all of it is content.
  std::vector<text::AnswerEvent> parts;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;  // of the tokens whose text is passed on now
  std::optional<ChoiceEnd> end;        // with the last delta

  // Joins it with what came after it.
  void Append(ChoiceDelta next);
};

class Choice {
 public:
  struct Prompt {
    int32_t tokens = 0;
    text::ThinkingPlace thinking = text::ThinkingPlace::kNone;
  };
  // The spec outlives the choice.
  Choice(const GenerationSpec& spec, const ServedModel& model, Prompt prompt);

  // Takes the event's tokens up to the end of the answer; what follows a stop string is dropped.
  ChoiceDelta Push(TokenEvent& event);
  bool ended() const { return ended_; }
  // Deltas come in parts.
  bool divides() const { return parser_ != nullptr; }

  int32_t prompt_tokens() const { return prompt_tokens_; }
  int32_t completion_tokens() const { return completion_tokens_; }
  int32_t reasoning_tokens() const { return reasoning_tokens_; }
  int32_t cached_tokens() const { return cached_tokens_; }
  // Of speculative decoding; num_verifies is 0 without it.
  struct DraftCounts {
    int32_t num_verifies = 0;  // steps that verified drafts
    int32_t num_drafts = 0;
    int32_t num_accepted = 0;
  };
  const DraftCounts& draft_counts() const { return draft_counts_; }
  std::vector<TokenLogprob>& prompt_logprobs() { return prompt_logprobs_; }
  // [H], the sum that LogprobParams::hidden asks for.
  const std::vector<float>& hidden() const { return hidden_; }
  // Of the generated tokens; 0 unless the engine was asked for scores.
  double cumulative_logprob() const { return cumulative_logprob_; }

 private:
  struct PendingLogprob {
    size_t begin;  // bytes of detokenised text before the token and after it
    size_t end;
    TokenLogprob logprob;
  };
  // Keeps a token's score as far as the request wants it.
  void TakeScore(size_t begin, TokenLogprob logprob);
  void PushText(std::string_view text, ChoiceDelta& delta);
  // Text that no stop string or expression has a claim on.
  void PassOn(std::string_view text, ChoiceDelta& delta);
  // The answer ends with a stop string or expression.
  void Stop(std::string matched, ChoiceDelta& delta);
  void Finish(ChoiceEnd end, ChoiceDelta& delta);
  // Divides what the delta has gained since `begin` into its parts.
  void Divide(size_t begin, ChoiceDelta& delta);
  void FinishParts(ChoiceDelta& delta);
  void TakeParts(std::vector<text::AnswerEvent>& events, ChoiceDelta& delta);
  void ReleaseLogprobs(ChoiceDelta& delta);

  const GenerationSpec& spec_;
  text::Detokenizer detokenizer_;
  std::optional<text::StopRegexMatcher> regex_matcher_;
  std::optional<text::StopMatcher> matcher_;      // of what regex_matcher_ passes on
  std::unique_ptr<text::AnswerFormat> format_;    // null where the text has no parts
  std::unique_ptr<text::AnswerParser> parser_;    // reads format_
  std::vector<text::AnswerEvent> held_thinking_;  // until it is over, unless it streams
  int32_t num_calls_ = 0;
  int32_t reasoning_tokens_ = 0;
  int32_t prompt_tokens_;
  int32_t completion_tokens_ = 0;
  double cumulative_logprob_ = 0;
  int32_t cached_tokens_ = 0;
  DraftCounts draft_counts_;
  size_t detokenised_ = 0;  // bytes
  size_t passed_on_ = 0;    // bytes
  bool ended_ = false;
  std::deque<PendingLogprob> pending_;
  std::vector<TokenLogprob> prompt_logprobs_;
  std::vector<float> hidden_;
};

}  // namespace hayate::api
