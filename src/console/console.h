#pragma once
// The web console: the files of web/, which are part of the binary. They are the same for everybody
// and need no key; what they ask of the API does.

#include "http/server.h"

namespace hayate::console {

// Answers GET and HEAD of "/" and "/console/…". False, and nothing has happened, for anything else.
bool Answer(const http::Request& request, http::ResponseWriter& writer);

}  // namespace hayate::console
