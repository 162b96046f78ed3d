#pragma once
// Everything that shapes a gateway, resolved once by whoever starts it.

#include <chrono>
#include <string>
#include <vector>

#include "gateway/admission.h"
#include "gateway/api_keys.h"
#include "gateway/header_rules.h"
#include "gateway/retry.h"
#include "gateway/router.h"
#include "http/cors.h"
#include "http/tls.h"

namespace hayate::gateway {

struct GatewayOptions {
  RouterOptions router;
  RetryOptions retry;
  HedgeOptions hedge;
  Admission::Options admission;
  HeaderRules headers;
  http::CorsOptions cors;
  std::vector<ApiKey> keys;  // empty: nobody needs one

  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds request_timeout{1'800'000};    // to the first byte of an answer
  std::chrono::milliseconds stream_idle_timeout{600'000};  // between two pieces of it
  std::chrono::milliseconds health_timeout{5'000};
  std::string health_path = "/health";
  bool health_checks = true;  // false: every worker whose name resolves counts as up
  std::chrono::milliseconds load_interval{10'000};
  std::shared_ptr<const http::TlsContext> worker_tls;  // for https workers
  std::string sticky_header = "x-sgl-routing-key";
  std::string access_log;             // a file, "-" for the standard output; empty: none
  size_t max_idle_connections = 256;  // to one worker, of one thread
};

}  // namespace hayate::gateway
