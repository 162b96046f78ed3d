#include "api/native_parse.h"

#include <limits>

#include "api/field_reader.h"
#include "api/grammar_fields.h"
#include "api/sampling_fields.h"
#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;

constexpr int64_t kDefaultMaxNewTokens = 128;  // SGLang's

void ReadSamplingObject(FieldReader& outer, simdjson::dom::object object, const std::string& prefix,
                        const ServedModel& model, GenerationSpec& spec) {
  FieldReader fields(object, prefix);
  ReadSamplingFields(fields, model, spec);
  spec.max_new_tokens = fields.Int("max_new_tokens", 0, std::numeric_limits<int64_t>::max())
                            .value_or(kDefaultMaxNewTokens);
  spec.sampling.min_new_tokens =
      static_cast<int32_t>(fields.Int("min_new_tokens", 0, model.max_context).value_or(0));
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  spec.seed = fields.Int("sampling_seed", kMin, kMax);
  spec.grammar = ReadGrammarFields(fields, prefix);
  outer.Fail(fields.status());
}

// One object for all prompts, or a list with one for each.
void ReadSamplingParams(FieldReader& outer, const ServedModel& model, GenerationSpec& spec) {
  spec.max_new_tokens = kDefaultMaxNewTokens;
  const auto value = outer.Any("sampling_params");
  if (!value) return;
  simdjson::dom::object object;
  if (value->get(object) == simdjson::SUCCESS) {
    return ReadSamplingObject(outer, object, "sampling_params.", model, spec);
  }
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) {
    return outer.Fail("sampling_params", "must be an object or a list of objects");
  }
  for (const element item : list) {
    const std::string where = "sampling_params[" + std::to_string(spec.per_prompt.size()) + "]";
    if (spec.per_prompt.size() == GenerationSpec::kMaxPrompts) {
      return outer.Fail("sampling_params", "holds more objects than there may be prompts");
    }
    if (item.get(object) != simdjson::SUCCESS) return outer.Fail(where, "must be an object");
    GenerationSpec& own = spec.per_prompt.emplace_back();
    ReadSamplingObject(outer, object, where + ".", model, own);
    if (!outer.status().ok()) return;
    if (own.n != spec.per_prompt[0].n) return outer.Fail(where + ".n", "must be equal in all");
    if (own.grammar) {
      return outer.Fail(InvalidField(own.grammar->field, "cannot be given in a list"));
    }
  }
  if (spec.per_prompt.empty()) return outer.Fail("sampling_params", "is an empty list");
  spec.n = spec.per_prompt[0].n;
}

// session_params: {"id", "rid", "offset", "replace", "drop_previous_output"}.
void ReadSession(FieldReader& outer, GenerationSpec& spec) {
  const auto object = outer.Object("session_params");
  if (!object) return;
  FieldReader fields(*object, "session_params.");
  SessionTurn turn;
  const auto id = fields.String("id");
  turn.session = id.value_or("");
  if (const auto parent = fields.String("rid"); parent && !parent->empty()) turn.parent = *parent;
  turn.offset = fields.Int("offset", 0, std::numeric_limits<int32_t>::max()).value_or(0);
  turn.replace = fields.Bool("replace").value_or(false);
  turn.drop_previous_output = fields.Bool("drop_previous_output").value_or(false);
  outer.Fail(fields.status());
  if (!id) return outer.Fail("session_params.id", "is missing");
  spec.session = std::move(turn);
}

// What a trainer may ask for and this server does not give is told, not left out.
void RefuseUnsupported(FieldReader& fields) {
  for (const char* name : {"return_hidden_states", "return_routed_experts", "return_entropy",
                           "return_sampling_mask", "return_bytes", "background"}) {
    if (fields.Bool(name).value_or(false)) fields.Fail(name, "is not supported here");
  }
  for (const char* name : {"input_embeds", "image_data", "video_data", "audio_data", "lora_path",
                           "custom_logit_processor"}) {
    if (fields.Any(name)) fields.Fail(name, "is not supported here");
  }
  for (const char* name : {"log_metrics", "no_logs", "return_prompt_token_ids"}) {
    fields.Ignore(name);
  }
}

Status ReadPrompts(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  const auto text = fields.Any("text");
  const auto ids = fields.Any("input_ids");
  if (text.has_value() == ids.has_value()) {
    return InvalidField("text", "give exactly one of text and input_ids");
  }
  std::string_view one;
  if (text && text->get(one) == simdjson::SUCCESS) {
    spec.prompts.emplace_back(std::string(one));
    return OkStatus();
  }
  const std::string name = text ? "text" : "input_ids";
  simdjson::dom::array array;
  if ((text ? *text : *ids).get(array) != simdjson::SUCCESS || array.size() == 0) {
    return InvalidField(name, "must be a {} or a list of them, not empty",
                        text ? "string" : "list of token ids");
  }
  if (ids && array.at(0).is_number()) {
    ASSIGN_OR_RETURN(auto tokens, ReadTokenIds(array, name, model.vocab_size));
    spec.prompts.emplace_back(std::move(tokens));
    return OkStatus();
  }
  spec.batched = true;
  for (const element item : array) {
    const std::string where = name + "[" + std::to_string(spec.prompts.size()) + "]";
    if (spec.prompts.size() == GenerationSpec::kMaxPrompts) {
      return InvalidField(name, "holds more than {} prompts", GenerationSpec::kMaxPrompts);
    }
    simdjson::dom::array inner;
    if (text && item.get(one) == simdjson::SUCCESS) {
      spec.prompts.emplace_back(std::string(one));
    } else if (ids && item.get(inner) == simdjson::SUCCESS) {
      ASSIGN_OR_RETURN(auto tokens, ReadTokenIds(inner, where, model.vocab_size));
      spec.prompts.emplace_back(std::move(tokens));
    } else {
      return InvalidField(where, "must be a {}", text ? "string" : "list of token ids");
    }
  }
  return OkStatus();
}

}  // namespace

Result<GenerationSpec> ParseGenerateRequest(simdjson::dom::object body, const ServedModel& model,
                                            std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kGenerate;
  ReadSamplingParams(fields, model, spec);
  spec.model = fields.String("model").value_or("");
  spec.stream = fields.Bool("stream").value_or(false);
  spec.logprobs.enabled = fields.Bool("return_logprob").value_or(false);
  const auto start = fields.Int("logprob_start_len", -1, std::numeric_limits<int32_t>::max());
  const auto top = fields.Int("top_logprobs_num", 0, LogprobParams::kMaxTop);
  if (spec.logprobs.enabled) {
    spec.logprobs.prompt_start = static_cast<int32_t>(start.value_or(-1));
    spec.logprobs.num_top = static_cast<int32_t>(top.value_or(0));
  }
  const std::vector<TokenId> asked = fields.TokenIds("token_ids_logprob", model.vocab_size);
  if (asked.size() > LogprobParams::kMaxTokenIds) {
    fields.Fail("token_ids_logprob", "holds more than 64 ids");
  }
  if (spec.logprobs.enabled) spec.logprobs.token_ids = asked;
  spec.return_text_in_logprobs = fields.Bool("return_text_in_logprobs").value_or(false);
  spec.request_ids = ReadRequestIds(fields, GenerationSpec::kMaxPrompts);
  if (const auto key = fields.String("extra_key")) spec.cache_namespace = *key;
  spec.priority = static_cast<int32_t>(fields.Int("priority", -1'000'000, 1'000'000).value_or(0));
  spec.deadline_ms = fields.Int("deadline_ms", 1, GenerationSpec::kMaxDeadlineMs);
  ReadSession(fields, spec);
  RefuseUnsupported(fields);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(ReadPrompts(fields, model, spec));
  if (spec.session && (spec.prompts.size() != 1 || spec.batched || spec.n != 1)) {
    return InvalidField("session_params", "a turn is one prompt with one answer");
  }
  if (!spec.per_prompt.empty() && spec.per_prompt.size() != spec.prompts.size()) {
    return InvalidField("sampling_params", "holds {} objects for {} prompts",
                        spec.per_prompt.size(), spec.prompts.size());
  }
  if (spec.request_ids.size() > 1 && spec.request_ids.size() != spec.prompts.size()) {
    return InvalidField("rid", "holds {} ids for {} prompts", spec.request_ids.size(),
                        spec.prompts.size());
  }
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
