// Service: the length of a Messages conversation. As long as its prompt takes, so it goes where
// prompts go.

#include <simdjson.h>

#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/prepare.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

Result<std::string> CountBody(const std::string& text, const ServedModel& model) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  ASSIGN_OR_RETURN(const simdjson::dom::object body, ParseBody(parser, text));
  ASSIGN_OR_RETURN(const GenerationSpec spec,
                   ParseMessagesRequest(body, model, MessagesUse::kCount, unknown));
  ASSIGN_OR_RETURN(const auto ids,
                   EncodeConversation(std::get<text::ChatInput>(spec.prompts.front()), model));
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("input_tokens", static_cast<int64_t>(ids.size()));
  json.EndObject();
  return out;
}

}  // namespace

void Service::CountTokens(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(request, std::move(writer), "application/json",
                     [this, body = std::move(request.body)] { return CountBody(body, model_); });
}

}  // namespace hayate::api
