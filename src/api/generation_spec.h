#pragma once
// A request for text, parsed and checked but not yet tokenised: what all generating routes have in
// common.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/session_table.h"
#include "api/tool_use.h"
#include "core/sampling_params.h"
#include "grammar/grammar_source.h"
#include "text/chat_template.h"
#include "text/dialect/answer_parser.h"
#include "text/prompt_blocks.h"
#include "text/stop_matcher.h"
#include "text/stop_regex.h"
#include "text/tokenizer.h"

namespace hayate::api {

enum class Dialect : uint8_t {
  kChat,
  kCompletion,
  kGenerate,
  kResponses,
  kMessages,
  kOllamaChat,
  kOllamaGenerate,
  // One token is drawn and not read: what counts are scores or hidden states at the prompt's end.
  kScore,
  kRerank,
  kEmbedding,
};

// A text, token ids, or a conversation for the chat template.
using PromptSource = std::variant<std::string, std::vector<TokenId>, text::ChatInput>;

// What /v1/responses gives back and keeps beside the answer.
struct ResponseFields {
  std::string echo;  // the request's own settings, as fields of a JSON object without braces
  // The items before the answer, each a JSON object; earlier responses' first.
  std::shared_ptr<const std::vector<std::string>> input;
  bool store = true;
  bool background = false;
  uint64_t owner = 0;  // whose key came with it: others do not see the response
};

// Of /v1/score and /v1/rerank: what becomes of the log-probabilities of logprobs.token_ids.
struct Scoring {
  bool softmax = false;                // among those tokens; else probabilities among all
  std::vector<std::string> documents;  // of a ranking; its first token says yes
  std::optional<int64_t> top_n;
  bool return_documents = true;
};

// Of /v1/embeddings.
struct EmbeddingFields {
  bool base64 = false;
  std::optional<int64_t> dimensions;  // the first so many; absent: all
};

struct GenerationSpec {
  Dialect dialect = Dialect::kChat;
  std::vector<PromptSource> prompts;  // at least one
  bool batched = false;               // /generate with a list: the answer is a list too
  int32_t n = 1;                      // choices a prompt
  // Of these, so many are shown: those of the highest cumulative log-probability, best first. 0:
  // all. Not in streams.
  int32_t num_best = 0;

  // max_new_tokens and stop ids are completed by Prepare; the seed of choice i is seed + i.
  SamplingParams sampling;
  std::optional<int64_t> max_new_tokens;  // absent: the rest of the context
  std::optional<int64_t> seed;            // absent: a fresh one
  std::vector<TokenId> stop_token_ids;
  std::shared_ptr<const text::StopStrings> stop_strings;  // null: none
  std::shared_ptr<const text::StopRegexes> stop_regexes;  // null: none
  text::StopText stop_text = text::StopText::kTrimmed;
  text::SkipSpecial skip_special = text::SkipSpecial::kYes;

  // What the answer, or the content after its thinking, must look like.
  std::optional<grammar::GrammarSource> grammar;
  ToolUse tools;
  // How the answer's text divides; whether it begins inside its thinking is seen from the prompt.
  text::AnswerFormat format;
  bool separate_reasoning = true;          // else thinking is content, markers and all
  bool show_reasoning = true;              // else Messages tells that there was some, not what
  bool stream_reasoning = true;            // else it comes in one piece when it is over
  std::optional<int64_t> thinking_budget;  // tokens; then the end marker is forced

  LogprobParams logprobs;  // as the client sees them
  // Alternatives beside each token of the prompt, in lists of their own; absent: no lists.
  std::optional<int32_t> prompt_logprobs;
  bool echo = false;  // completions: the prompt's text comes first
  bool return_text_in_logprobs = false;

  bool stream = false;
  int32_t stream_interval = 1;               // tokens of an event, after the first
  bool include_usage = false;                // a last event with the counts
  bool continuous_usage = false;             // counts in every event
  std::string model;                         // as the client wrote it
  std::optional<Scoring> scoring;            // with kScore and kRerank
  std::optional<EmbeddingFields> embedding;  // with kEmbedding
  // A turn of a session: one prompt, one choice, after the tokens that the session holds.
  std::optional<SessionTurn> session;
  std::vector<TokenId> session_prefix;
  std::vector<std::string> request_ids;  // rid; empty: made up
  std::string cache_namespace;
  // Of the only prompt, as routers hash it; empty when nobody is told what is cached.
  text::PromptBlocks prompt_blocks;
  size_t prompt_bytes = 0;
  int32_t priority = 0;
  std::optional<int64_t> deadline_ms;  // from submission; past it the request ends with an error
  std::optional<ResponseFields> response;  // with kResponses

  // /generate with a list of sampling_params: each prompt's, of which only sampling, lengths, seed,
  // stops and stream_interval count. Empty: this spec's own hold for all.
  std::vector<GenerationSpec> per_prompt;
  const GenerationSpec& OfPrompt(size_t prompt) const {
    return per_prompt.empty() ? *this : per_prompt[prompt];
  }

  // Alternatives that a prompt token's score keeps.
  size_t NumPromptTop() const {
    return static_cast<size_t>(std::max(logprobs.num_top, prompt_logprobs.value_or(0)));
  }
  // What the engine is asked for.
  LogprobParams EngineLogprobs() const {
    LogprobParams params = logprobs;
    params.enabled |= num_best > 0;
    if (prompt_logprobs) params.prompt_start = 0;
    params.num_top = static_cast<int32_t>(NumPromptTop());
    return params;
  }

  // A list of names gives each prompt its own; one name for a list of prompts gets "_0", "_1", ….
  bool HasNamePerPrompt() const {
    return request_ids.size() > 1 || (request_ids.size() == 1 && batched);
  }
  std::string NameOfPrompt(size_t prompt) const {
    return request_ids.size() > 1 ? request_ids[prompt]
                                  : request_ids[0] + "_" + std::to_string(prompt);
  }

  static constexpr int64_t kMaxDeadlineMs = int64_t{7} * 24 * 3600 * 1000;  // a week
  static constexpr int32_t kMaxChoices = 128;
  static constexpr size_t kMaxPrompts = 2048;
};

}  // namespace hayate::api
