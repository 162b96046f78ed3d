#include "app/server_address.h"

#include <simdjson.h>

#include "base/error.h"
#include "http/client.h"

namespace hayate::app {
namespace {

constexpr size_t kMaxInfoBytes = 1 << 20;

Result<http::BlockingClient::Response> Get(http::BlockingClient& client,
                                           const ServerAddress& address, const std::string& api_key,
                                           const char* path) {
  http::ClientRequest request;
  request.target = address.base_path + path;
  if (!api_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key);
  return client.Fetch(std::move(request), kMaxInfoBytes);
}

}  // namespace

Result<ServerAddress> ParseServerAddress(const std::string& base_url) {
  auto url = http::ParseUrl(base_url);
  if (!url.ok()) return url.status().Under(base_url);
  std::string path = url->target.substr(0, url->target.find('?'));
  while (!path.empty() && path.back() == '/') path.pop_back();
  constexpr std::string_view kApiRoot = "/v1";
  if (path.ends_with(kApiRoot)) path.resize(path.size() - kApiRoot.size());
  return ServerAddress{url->endpoint, path, "http://" + url->endpoint.ToString() + path};
}

Result<ServerFacts> AskServer(const ServerAddress& address, const std::string& api_key,
                              const std::string& model) {
  ASSIGN_OR_RETURN(auto client, http::BlockingClient::Create(
                                    address.endpoint, {.head_timeout = std::chrono::seconds(30)}));
  ServerFacts facts{.model = model};
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  ASSIGN_OR_RETURN(const auto models, Get(client, address, api_key, "/v1/models"));
  if (models.status == 401 || models.status == 403) {
    return Error(ErrorCode::kUnauthenticated, "{} refuses the API key; give one with --api-key",
                 address.url);
  }
  std::string_view name;
  if (facts.model.empty() && models.status == 200 &&
      parser.parse(models.body).get(root) == simdjson::SUCCESS &&
      root["data"].at(0)["id"].get(name) == simdjson::SUCCESS) {
    facts.model = name;
  }
  if (facts.model.empty()) {
    return Error(ErrorCode::kNotFound, "{} names no model (HTTP {}); give one with --model",
                 address.url, models.status);
  }
  const auto info = Get(client, address, api_key, "/get_model_info");
  int64_t vocab_size = 0;
  if (info.ok() && info->status == 200 && parser.parse(info->body).get(root) == simdjson::SUCCESS &&
      root["vocab_size"].get(vocab_size) == simdjson::SUCCESS && vocab_size > 0 &&
      vocab_size < INT32_MAX) {
    facts.vocab_size = static_cast<int32_t>(vocab_size);
  }
  return facts;
}

}  // namespace hayate::app
