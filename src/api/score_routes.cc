// Service: routes whose answer is a number or a vector, made of a prompt's last position.

#include <utility>

#include "api/embedding_parse.h"
#include "api/score_parse.h"
#include "api/service.h"

namespace hayate::api {

void Service::Score(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseScoreRequest(body, model_, unknown);
  });
}

void Service::Rerank(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseRerankRequest(body, model_, unknown);
  });
}

void Service::Embeddings(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseEmbeddingRequest(body, model_, unknown);
  });
}

}  // namespace hayate::api
