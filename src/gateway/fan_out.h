#pragma once
// One request to every worker, and one answer that gathers theirs.

#include <memory>

#include "http/server.h"

namespace hayate::gateway {

class Lane;

// On the lane's thread. Answers 200 when every worker did, else the worst of their statuses (502
// for one that could not be reached), with a JSON list of what each said.
void FanOut(Lane& lane, http::Request& request, http::ResponseWriter writer);

}  // namespace hayate::gateway
