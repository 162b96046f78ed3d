// Service: text to ids and back. A long text takes as long as a prompt, so it goes where prompts
// go.

#include <simdjson.h>

#include "api/field_reader.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

void WriteIds(JsonWriter& json, const std::vector<TokenId>& ids) {
  json.BeginArray();
  for (const TokenId id : ids) json.Int(id);
  json.EndArray();
}

Result<std::vector<std::vector<TokenId>>> EncodeAll(FieldReader& fields, const ServedModel& model,
                                                    bool& list) {
  const auto prompt = fields.Any("prompt");
  const bool add_special = fields.Bool("add_special_tokens").value_or(true);
  const bool has_messages = fields.Any("messages").has_value();
  if (prompt.has_value() == has_messages) {
    return InvalidField("prompt", "give exactly one of prompt and messages");
  }
  RETURN_IF_ERROR(fields.status());
  std::vector<std::vector<TokenId>> all;
  if (has_messages) {
    ASSIGN_OR_RETURN(const text::ChatInput input, ReadConversation(fields, model));
    ASSIGN_OR_RETURN(auto ids, EncodeConversation(input, model));
    all.push_back(std::move(ids));
    return all;
  }
  simdjson::dom::array array;
  list = prompt->get(array) == simdjson::SUCCESS;
  const text::EncodeOptions options{.add_bos_eos =
                                        add_special ? text::AddBosEos::kYes : text::AddBosEos::kNo};
  for (const std::string& text : fields.Strings("prompt", GenerationSpec::kMaxPrompts)) {
    ASSIGN_OR_RETURN(auto ids, model.tokenizer->Encode(text, options));
    all.push_back(std::move(ids));
  }
  RETURN_IF_ERROR(fields.status());
  return all;
}

Result<std::string> TokenizeBody(const std::string& text, const ServedModel& model) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object body, ParseBody(parser, text));
  FieldReader fields(body);
  bool list = false;
  ASSIGN_OR_RETURN(const auto all, EncodeAll(fields, model, list));
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("tokens");
  if (list) json.BeginArray();
  for (const auto& ids : all) WriteIds(json, ids);
  if (list) json.EndArray();
  json.Key("count");
  if (list) json.BeginArray();
  for (const auto& ids : all) json.Uint(ids.size());
  if (list) json.EndArray();
  json.Field("max_model_len", model.max_context);
  json.EndObject();
  return out;
}

Result<std::string> DetokenizeBody(const std::string& text, const ServedModel& model) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object body, ParseBody(parser, text));
  FieldReader fields(body);
  const auto tokens = fields.Array("tokens");
  const auto mode = fields.Bool("skip_special_tokens").value_or(true) ? text::SkipSpecial::kYes
                                                                      : text::SkipSpecial::kNo;
  RETURN_IF_ERROR(fields.status());
  if (!tokens) return InvalidField("tokens", "is missing");
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("text");
  if (tokens->size() > 0 && tokens->at(0).is_array()) {
    json.BeginArray();
    for (const simdjson::dom::element item : *tokens) {
      simdjson::dom::array inner;
      if (item.get(inner) != simdjson::SUCCESS) {
        return InvalidField("tokens", "must hold lists of token ids only");
      }
      ASSIGN_OR_RETURN(const auto ids, ReadTokenIds(inner, "tokens", model.vocab_size));
      json.String(model.tokenizer->Decode(ids, mode));
    }
    json.EndArray();
  } else {
    ASSIGN_OR_RETURN(const auto ids, ReadTokenIds(*tokens, "tokens", model.vocab_size));
    json.String(model.tokenizer->Decode(ids, mode));
  }
  json.EndObject();
  return out;
}

}  // namespace

void Service::Tokenize(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(request, std::move(writer), "application/json",
                     [this, body = std::move(request.body)] { return TokenizeBody(body, model_); });
}

void Service::Detokenize(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(
      request, std::move(writer), "application/json",
      [this, body = std::move(request.body)] { return DetokenizeBody(body, model_); });
}

}  // namespace hayate::api
