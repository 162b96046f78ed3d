// Service: routes whose answer is a number or a vector, made of a prompt's last position.

#include <simdjson.h>

#include "api/embedding_parse.h"
#include "api/field_reader.h"
#include "api/score_parse.h"
#include "api/send_error.h"
#include "api/service.h"

namespace hayate::api {

void Service::Score(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  auto spec = ParseScoreRequest(*body, model_, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::Rerank(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  auto spec = ParseRerankRequest(*body, model_, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::Embeddings(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  auto spec = ParseEmbeddingRequest(*body, model_, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

}  // namespace hayate::api
