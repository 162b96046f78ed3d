#pragma once
// What the API needs to know of the model behind it. Immutable once the server is ready; any
// thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/weights_in_use.h"
#include "core/ids.h"
#include "grammar/grammar_compiler.h"
#include "text/chat_template.h"
#include "text/dialect/dialects.h"
#include "text/template/value.h"
#include "text/tokenizer.h"

namespace hayate::api {

// From the checkpoint's generation_config.json. They come after the request's own values and before
// the API's defaults.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};

// How streams are cut, where the request says nothing.
struct StreamDefaults {
  int32_t interval = 1;  // tokens of an event
  // An event of /generate holds what came since the one before; else all so far.
  bool incremental = false;
  bool include_usage = false;  // as if stream_options asked for it
};

struct ServedModel {
  std::string name;  // what /v1/models lists; "default" is accepted beside it
  std::string path;  // of the start: tokenizer, template and options are its
  std::shared_ptr<WeightsInUse> weights;
  std::string architecture;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  std::vector<TokenId> eos_ids;
  int32_t max_context = 0;     // prompt and answer, tokens
  int32_t vocab_size = 0;      // rows of the logits
  int32_t embedding_size = 0;  // H; 0: it gives no hidden states
  // The operator's bounds, tokens; 0: the context alone.
  int32_t max_prompt = 0;
  int32_t max_output = 0;
  bool truncates_prompts = false;  // one that leaves no room for the answer is cut, not refused
  SamplingDefaults defaults;
  StreamDefaults stream;
  text::jinja::Value template_kwargs;  // dict of variables of the template, or None
  // How the model writes thinking and calls; null: it has no such habit.
  const text::ReasoningDialect* reasoning = nullptr;
  const text::ToolDialect* tools = nullptr;
  // Control tokens that spell a dialect's markers, ascending.
  std::vector<TokenId> marker_ids;
  std::shared_ptr<grammar::GrammarCompiler> grammars;  // null: answers cannot be constrained
  int64_t created = 0;                                 // Unix seconds of the start
  std::string server_info_json;  // the options in force, as fields of a JSON object without braces
  bool report_cached_tokens = false;
};

}  // namespace hayate::api
