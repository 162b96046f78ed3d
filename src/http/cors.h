#pragma once
// Cross-origin requests (the Fetch standard's CORS): which web pages of other origins may read the
// answers. Off unless origins are named.

#include <string>
#include <vector>

#include "http/response_writer.h"
#include "http/server.h"

namespace hayate::http {

struct CorsOptions {
  std::vector<std::string> allowed_origins;  // "https://host[:port]" as browsers send it; "*": all
};

// Adds the fields that an allowed origin needs to whatever answer follows. True when the request
// only asked what is allowed: then it has been answered. Credentials (cookies) are never allowed;
// keys go into Authorization, which is.
bool ApplyCors(const CorsOptions& options, const Request& request, ResponseWriter& writer);

}  // namespace hayate::http
