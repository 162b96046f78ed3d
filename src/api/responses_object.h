#pragma once
// The JSON objects of /v1/responses: the response, its output items and their parts.

#include <string>
#include <string_view>
#include <vector>

#include "api/block_formatter.h"
#include "base/json_writer.h"

namespace hayate::api {

// "rs_…", "msg_…" or "fc_…": a name of the block's own.
std::string ItemId(const AnswerHead& head, size_t index, const AnswerBlock& block);

// The output item that a block is; `status`: "in_progress", "completed", "incomplete". An item in
// progress is empty.
void WriteOutputItem(JsonWriter& json, const AnswerHead& head, size_t index,
                     const AnswerBlock& block, std::string_view status);

// The one part of an item of thinking or text, as it begins or in the end.
enum class PartState : uint8_t { kBegins, kWhole };
void WriteContentPart(JsonWriter& json, const AnswerHead& head, const AnswerBlock& block,
                      PartState state);

// Where a response stands.
struct ResponseProgress {
  std::string_view status;        // "queued", "in_progress", "completed", "incomplete", …
  const Usage* usage = nullptr;   // null before the end
  const Status* error = nullptr;  // with "failed"
  int64_t completed_at = 0;       // with "completed"
  // The output as JSON items.
  const std::vector<std::string>* output = nullptr;
};
std::string RenderResponse(const AnswerHead& head, const ResponseProgress& progress);

}  // namespace hayate::api
