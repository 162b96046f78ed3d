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

// "call_" and 24 hexadecimal digits: 16 of the answer's own, the choice, the call.
std::string CallId(uint64_t call_seed, size_t choice, int32_t call);

// Chat's list of scores: token, logprob, bytes and top_logprobs of each.
void WriteScores(JsonWriter& json, const std::vector<TokenLogprob>& scores,
                 const ServedModel& model);

// The key "prompt_logprobs": null for the first token, then an object by token id of logprob, rank
// (from 1) and decoded_token for each. Nothing where it was not asked for.
void WritePromptLogprobs(JsonWriter& json, const GenerationSpec& spec, const ServedModel& model,
                         Choice& choice);

}  // namespace hayate::api
