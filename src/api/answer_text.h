#pragma once
// Pieces of answers that the formatters share.

#include <string>
#include <string_view>
#include <vector>

#include "api/choice.h"
#include "api/formatter.h"
#include "base/json_writer.h"

namespace hayate::api {

// "stop", "length", "abort".
std::string_view FinishName(FinishReason reason);

// An id, a string or null.
void WriteMatchedStop(JsonWriter& json, const ChoiceEnd& end);

// {"prompt_tokens":…,"completion_tokens":…,"total_tokens":…,"prompt_tokens_details":{…}}.
void WriteUsage(JsonWriter& json, const Usage& usage, const ServedModel& model);

// Ends a streamed event's object: counts where there are some, else null in a stream that carries
// them at its end.
void EndEvent(JsonWriter& json, const AnswerHead& head, const Usage* usage);

// What a token shows as in log-probabilities: its bytes as text, repaired.
std::string TokenText(const ServedModel& model, TokenId token);

// The gathered deltas of one choice, joined.
struct GatheredChoice {
  std::string text;
  std::vector<text::AnswerEvent> parts;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  ChoiceEnd end;

  void Add(ChoiceDelta delta);
};

}  // namespace hayate::api
