#pragma once
// Which web pages may call from a browser (CORS).

#include <string>
#include <vector>

#include "http/server.h"

namespace hayate::api {

struct CrossOriginOptions {
  // "https://app.example", or "*" for every page; empty: none.
  std::vector<std::string> allowed_origins;
};

// Adds the fields that an allowed page's request needs to whatever answer follows. A browser's
// question beforehand is answered: true.
bool AnswerPreflight(const CrossOriginOptions& options, const http::Request& request,
                     http::ResponseWriter& writer);

}  // namespace hayate::api
