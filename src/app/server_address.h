#pragma once
// The server that a client command talks to, from its flags, and what it says of itself.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "http/endpoint.h"

namespace hayate::app {

struct ServerAddress {
  http::Endpoint endpoint;
  std::string base_path;  // before "/v1/…", without a slash at its end
  std::string url;        // for people
};

// "http://host:port[/path]"; a path of "/v1" is the API's own and is left out.
Result<ServerAddress> ParseServerAddress(const std::string& base_url);

struct ServerFacts {
  std::string model;       // the first that it lists
  int32_t vocab_size = 0;  // 0: it does not say
};

// Asks /v1/models and /get_model_info. `model` may be empty; an error when it is and the server
// names none, or when the server does not answer.
Result<ServerFacts> AskServer(const ServerAddress& address, const std::string& api_key,
                              const std::string& model);

}  // namespace hayate::app
