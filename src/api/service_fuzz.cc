// Any body on any route of the service, over a connection and with the simulated engine behind it:
// it is answered, and the answer is whole. The first byte picks the route.

#include <simdjson.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "api/testing/served_tokens.h"
#include "base/check.h"
#include "base/log.h"
#include "http/client.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

constexpr int32_t kMaxContext = 96;  // answers end soon
constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr size_t kMaxQueryBytes = 1024;

struct Route {
  const char* method;
  const char* target;
};
// All but those that write files where the body says. Behind a "?" the bytes are the query.
constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions"},
    {"POST", "/v1/completions"},
    {"POST", "/generate"},
    {"POST", "/v1/responses"},
    {"POST", "/v1/responses/resp_x/cancel"},
    {"POST", "/v1/messages"},
    {"POST", "/v1/messages/count_tokens"},
    {"POST", "/tokenize"},
    {"POST", "/detokenize"},
    {"POST", "/v1/embeddings"},
    {"POST", "/v1/score"},
    {"POST", "/v1/rerank"},
    {"POST", "/parse_function_call"},
    {"POST", "/separate_reasoning"},
    {"POST", "/api/chat"},
    {"POST", "/api/generate"},
    {"POST", "/api/show"},
    {"POST", "/open_session"},
    {"POST", "/close_session"},
    {"POST", "/abort_request"},
    {"POST", "/pause_generation"},
    {"POST", "/continue_generation"},
    {"POST", "/set_internal_state"},
    {"POST", "/get_weights_by_name"},
    {"POST", "/update_weights_from_disk"},
    {"POST", "/update_weight_version"},
    {"GET", "/v1/responses/resp_x?"},
    {"GET", "/v1/responses/resp_x/input_items?"},
    {"GET", "/v1/loads?"},
    {"GET", "/v1/cache_events?"},
    {"GET", "/trace?"},
    {"GET", "/openapi.json?"},
};

std::string QueryOf(std::string_view bytes) {
  std::string query(bytes.substr(0, kMaxQueryBytes));
  std::erase_if(query, [](char c) { return c <= ' ' || c >= '\x7f'; });
  return query;
}

struct Front {
  Front() : served(kMaxContext), client(*Connect(served.port())) {
    CHECK(SetLogLevel("off").ok());
    served.StartEngine();
  }
  static Result<http::BlockingClient> Connect(uint16_t port) {
    return http::BlockingClient::Create({"127.0.0.1", port}, {});
  }
  testing::ServedTokens served;
  http::BlockingClient client;
};

void CheckJson(std::string_view text) {
  simdjson::dom::parser parser;
  CHECK(parser.parse(text.data(), text.size()).error() == simdjson::SUCCESS) << text;
}

void CheckLines(std::string_view text) {
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    CheckJson(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  CHECK(text.empty()) << text;
}

void CheckEvents(std::string_view text) {
  http::SseParser parser(kMaxAnswerBytes);
  parser.Feed(text);
  http::SseEvent event;
  while (parser.Next(event) == http::SseParser::Outcome::kEvent) {
    if (event.data != "[DONE]") CheckJson(event.data);
  }
}

void CheckAnswer(const http::BlockingClient::Response& answer) {
  std::string_view type;
  for (const auto& [name, value] : answer.headers) {
    if (name == "Content-Type" || name == "content-type") type = value;
  }
  CHECK(answer.status < 500 || answer.status == 503 || answer.status == 501)
      << answer.status << ": " << answer.body;
  if (type == "application/json") CheckJson(answer.body);
  if (type == "application/x-ndjson") CheckLines(answer.body);
  if (type == http::kSseContentType) CheckEvents(answer.body);
}

void Run(uint8_t choice, std::string body) {
  static Front front;
  const Route& route = kRoutes[choice % std::size(kRoutes)];
  http::ClientRequest request;
  request.method = route.method;
  request.target = route.target;
  if (request.target.ends_with('?')) {
    request.target += QueryOf(body);
  } else {
    request.body = std::move(body);
  }
  const auto answer = front.client.Fetch(std::move(request), kMaxAnswerBytes);
  CHECK(answer.ok()) << route.target << ": " << answer.status().message();
  CheckAnswer(*answer);
  // A pause would hold all that follow.
  CHECK(front.served.client().Continue().get().ok());
}

}  // namespace
}  // namespace hayate::api

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  hayate::api::Run(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
