#include "api/score_parse.h"

#include "api/conversation.h"
#include "api/field_reader.h"
#include "api/thinking_fields.h"
#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;

// What both have in common: nothing is drawn but one token that nobody reads.
void ReadCommonFields(FieldReader& fields, GenerationSpec& spec) {
  spec.sampling.temperature = 0.0f;
  spec.max_new_tokens = 1;
  spec.logprobs.enabled = true;
  spec.model = fields.String("model").value_or("");
  if (const auto key = fields.String("extra_key")) spec.cache_namespace = *key;
  spec.priority = static_cast<int32_t>(fields.Int("priority", -1'000'000, 1'000'000).value_or(0));
  fields.Ignore("user");
}

// The query and the items as texts.
Status ReadTexts(FieldReader& fields, bool item_first, GenerationSpec& spec) {
  const auto query = fields.String("query");
  const std::vector<std::string> items = fields.Strings("items", GenerationSpec::kMaxPrompts);
  RETURN_IF_ERROR(fields.status());
  if (items.empty()) return InvalidField("items", "must hold at least one item");
  for (const std::string& item : items) {
    const std::string text(query.value_or(""));
    spec.prompts.emplace_back(item_first ? item + text : text + item);
  }
  return OkStatus();
}

// The same as lists of token ids.
Status ReadIds(simdjson::dom::array query, FieldReader& fields, const ServedModel& model,
               bool item_first, GenerationSpec& spec) {
  ASSIGN_OR_RETURN(const auto query_ids, ReadTokenIds(query, "query", model.vocab_size));
  const auto items = fields.Array("items");
  RETURN_IF_ERROR(fields.status());
  if (!items || items->size() == 0) return InvalidField("items", "must hold at least one item");
  for (const element item : *items) {
    const std::string where = "items[" + std::to_string(spec.prompts.size()) + "]";
    if (spec.prompts.size() == GenerationSpec::kMaxPrompts) {
      return InvalidField("items", "holds more than {} items", GenerationSpec::kMaxPrompts);
    }
    simdjson::dom::array array;
    if (item.get(array) != simdjson::SUCCESS) {
      return InvalidField(where, "must be a list of token ids, as query is");
    }
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadTokenIds(array, where, model.vocab_size));
    std::vector<TokenId> prompt = item_first ? ids : query_ids;
    const std::vector<TokenId>& rest = item_first ? query_ids : ids;
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    spec.prompts.emplace_back(std::move(prompt));
  }
  return OkStatus();
}

// A word that the vocabulary holds as one token.
Result<TokenId> TokenOf(const std::string& word, const ServedModel& model) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   model.tokenizer->Encode(word, {.add_bos_eos = text::AddBosEos::kNo}));
  if (ids.size() == 1) return ids.front();
  return Error(ErrorCode::kUnsupported, "this model writes '{}' as {} tokens, not as one", word,
               ids.size());
}

// The form that decoder rerankers are trained on.
text::ChatInput RerankConversation(const std::string& instruct, std::string_view query,
                                   const std::string& document, const ServedModel& model) {
  constexpr std::string_view kJudge =
      "Judge whether the Document meets the requirements based on the Query and the Instruct "
      "provided. Note that the answer can only be \"yes\" or \"no\".";
  std::vector<Message> messages;
  messages.push_back({.role = "system", .texts = {std::string(kJudge)}});
  messages.push_back({.role = "user",
                      .texts = {"<Instruct>: " + instruct + "\n<Query>: " + std::string(query) +
                                "\n<Document>: " + document}});
  text::ChatInput input;
  input.messages = TemplateMessages(messages, *model.chat_template);
  // The answer is the first token: no thinking before it.
  ApplyThinking({.enabled = false}, model, input);
  return input;
}

}  // namespace

Result<GenerationSpec> ParseScoreRequest(simdjson::dom::object body, const ServedModel& model,
                                         std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kScore;
  ReadCommonFields(fields, spec);
  spec.scoring.emplace();
  spec.scoring->softmax = fields.Bool("apply_softmax").value_or(false);
  const bool item_first = fields.Bool("item_first").value_or(false);
  spec.logprobs.token_ids = fields.TokenIds("label_token_ids", model.vocab_size);
  RETURN_IF_ERROR(fields.status());
  const size_t labels = spec.logprobs.token_ids.size();
  if (labels == 0 || labels > LogprobParams::kMaxTokenIds) {
    return InvalidField("label_token_ids", "must hold 1 to {} ids", LogprobParams::kMaxTokenIds);
  }
  const auto query = fields.Any("query");
  simdjson::dom::array ids;
  if (query && query->get(ids) == simdjson::SUCCESS) {
    RETURN_IF_ERROR(ReadIds(ids, fields, model, item_first, spec));
  } else {
    RETURN_IF_ERROR(ReadTexts(fields, item_first, spec));
  }
  unknown = fields.Unread();
  return spec;
}

Result<GenerationSpec> ParseRerankRequest(simdjson::dom::object body, const ServedModel& model,
                                          std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kRerank;
  ReadCommonFields(fields, spec);
  Scoring& scoring = spec.scoring.emplace();
  scoring.softmax = true;
  const auto query = fields.String("query");
  scoring.documents = fields.Strings("documents", GenerationSpec::kMaxPrompts);
  const std::string instruct(
      fields.String("instruct")
          .value_or("Given a web search query, retrieve relevant passages that answer the query"));
  scoring.top_n = fields.Int("top_n", 1, GenerationSpec::kMaxPrompts);
  scoring.return_documents = fields.Bool("return_documents").value_or(true);
  RETURN_IF_ERROR(fields.status());
  if (!query) return InvalidField("query", "is missing");
  if (scoring.documents.empty()) return InvalidField("documents", "must hold at least one");
  ASSIGN_OR_RETURN(const TokenId yes, TokenOf("yes", model));
  ASSIGN_OR_RETURN(const TokenId no, TokenOf("no", model));
  spec.logprobs.token_ids = {yes, no};
  for (const std::string& document : scoring.documents) {
    spec.prompts.emplace_back(RerankConversation(instruct, *query, document, model));
  }
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
