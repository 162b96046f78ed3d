// Service: text to ids and back. Short texts; done on the http thread like other parsing.

#include <simdjson.h>

#include "api/field_reader.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/send_error.h"
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

}  // namespace

void Service::Tokenize(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  bool list = false;
  auto all = EncodeAll(fields, model_, list);
  if (!all.ok()) return SendError(writer, all.status());
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("tokens");
  if (list) {
    json.BeginArray();
    for (const auto& ids : *all) WriteIds(json, ids);
    json.EndArray();
  } else {
    WriteIds(json, all->front());
  }
  json.Key("count");
  if (list) {
    json.BeginArray();
    for (const auto& ids : *all) json.Uint(ids.size());
    json.EndArray();
  } else {
    json.Uint(all->front().size());
  }
  json.Field("max_model_len", model_.max_context);
  json.EndObject();
  SendJson(writer, out);
}

void Service::Detokenize(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  const auto tokens = fields.Array("tokens");
  const bool skip = fields.Bool("skip_special_tokens").value_or(true);
  if (fields.status().ok() && !tokens) fields.Fail("tokens", "is missing");
  if (!fields.status().ok()) return SendError(writer, fields.status());
  const auto mode = skip ? text::SkipSpecial::kYes : text::SkipSpecial::kNo;
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("text");
  simdjson::dom::array first;
  if (tokens->size() > 0 && tokens->at(0).get(first) == simdjson::SUCCESS) {
    json.BeginArray();
    for (const simdjson::dom::element item : *tokens) {
      simdjson::dom::array inner;
      if (item.get(inner) != simdjson::SUCCESS) {
        return SendError(writer, InvalidField("tokens", "must hold lists of token ids only"));
      }
      auto ids = ReadTokenIds(inner, "tokens", model_.vocab_size);
      if (!ids.ok()) return SendError(writer, ids.status());
      json.String(model_.tokenizer->Decode(*ids, mode));
    }
    json.EndArray();
  } else {
    auto ids = ReadTokenIds(*tokens, "tokens", model_.vocab_size);
    if (!ids.ok()) return SendError(writer, ids.status());
    json.String(model_.tokenizer->Decode(*ids, mode));
  }
  json.EndObject();
  SendJson(writer, out);
}

}  // namespace hayate::api
