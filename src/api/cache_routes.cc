// Service: which prompts' beginnings are cached, for routers. docs/gateway.md describes the route.

#include <charconv>

#include "api/send_error.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "text/prompt_blocks.h"

namespace hayate::api {
namespace {

constexpr uint64_t kMaxChanges = 16384;  // of one answer

// A number of the query; `fallback` when it is absent.
Result<uint64_t> ReadNumber(std::string_view query, std::string_view name, int base,
                            uint64_t fallback) {
  const auto text = http::QueryValue(query, name);
  if (!text) return fallback;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value, base);
  if (text->empty() || error != std::errc() || end != text->data() + text->size()) {
    return InvalidField(std::string(name), "is not a number");
  }
  return value;
}

void WriteHashes(JsonWriter& json, std::string_view name, const std::vector<uint64_t>& hashes) {
  json.Key(name);
  json.BeginArray();
  for (const uint64_t hash : hashes) json.String(fmt::format("{:x}", hash));
  json.EndArray();
}

}  // namespace

void Service::CacheEvents(http::Request& request, http::ResponseWriter writer) {
  const engine::CacheJournal* journal = client_.cache_journal();
  if (journal == nullptr) {
    return SendError(writer, Status(ErrorCode::kNotFound,
                                    "cache events are off; start the server with "
                                    "--enable-cache-events"));
  }
  const auto epoch = ReadNumber(request.query, "epoch", 16, 0);
  const auto after = ReadNumber(request.query, "after", 10, 0);
  const auto limit = ReadNumber(request.query, "limit", 10, kMaxChanges);
  for (const auto* value : {&epoch, &after, &limit}) {
    if (!value->ok()) return SendError(writer, value->status());
  }
  const engine::CacheReading reading =
      journal->Read(*epoch, *after, static_cast<size_t>(std::min(*limit, kMaxChanges)));
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("epoch", fmt::format("{:x}", reading.epoch));
  json.Field("next", reading.next);
  json.Field("whole", reading.whole);
  json.Field("more", reading.more);
  json.Field("block_bytes", uint64_t{text::kPromptBlockBytes});
  WriteHashes(json, "held", reading.held);
  WriteHashes(json, "dropped", reading.dropped);
  json.EndObject();
  SendJson(writer, body);
}

}  // namespace hayate::api
