#pragma once
// The items of a Responses conversation: messages, calls, results of calls and thinking.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/conversation.h"
#include "base/status.h"

namespace hayate::api {

// Appends what `input` (a text or a list of items) says to the conversation, and each item to
// `items` as JSON in its full form. `where` names the field in errors.
Status ReadResponsesItems(simdjson::dom::element input, const std::string& where,
                          ConversationBuilder& conversation, std::vector<std::string>& items);

}  // namespace hayate::api
