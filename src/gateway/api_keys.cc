#include "gateway/api_keys.h"

#include <simdjson.h>

#include "base/constant_time.h"
#include "base/error.h"
#include "http/message.h"

namespace hayate::gateway {
namespace {

Status ReadLimit(simdjson::dom::object entry, const std::string& where, const char* field,
                 double& out) {
  simdjson::dom::element value;
  if (entry[field].get(value) != simdjson::SUCCESS) return OkStatus();
  double number = 0.0;
  if (value.get(number) != simdjson::SUCCESS || number < 0.0 || number > 1e12) {
    return Error(ErrorCode::kInvalidArgument, "{}.{} must be a number of at least 0", where, field);
  }
  out = number;
  return OkStatus();
}

Result<ApiKey> ReadKey(simdjson::dom::object entry, const std::string& where) {
  ApiKey key;
  std::string_view text;
  if (entry["key"].get(text) != simdjson::SUCCESS || text.empty()) {
    return Error(ErrorCode::kInvalidArgument, "{}.key must be a string that is not empty", where);
  }
  key.key = text;
  key.id = where;
  if (entry["id"].get(text) == simdjson::SUCCESS) key.id = text;
  double concurrent = 0.0;
  RETURN_IF_ERROR(ReadLimit(entry, where, "requests_per_second", key.limits.requests_per_second));
  RETURN_IF_ERROR(ReadLimit(entry, where, "tokens_per_second", key.limits.tokens_per_second));
  RETURN_IF_ERROR(ReadLimit(entry, where, "max_concurrent", concurrent));
  key.limits.max_concurrent = static_cast<int64_t>(concurrent);
  if (entry["priority"].get(text) == simdjson::SUCCESS) {
    const auto priority = ParsePriority(text);
    if (!priority) {
      return Error(ErrorCode::kInvalidArgument, "{}.priority must be high, normal or low", where);
    }
    key.priority = *priority;
  }
  bool admin = false;
  key.admin = entry["admin"].get(admin) == simdjson::SUCCESS && admin;
  return key;
}

}  // namespace

std::optional<Priority> ParsePriority(std::string_view text) {
  if (text == "high") return Priority::kHigh;
  if (text == "normal") return Priority::kNormal;
  if (text == "low") return Priority::kLow;
  return std::nullopt;
}

Result<std::vector<ApiKey>> ParseApiKeys(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::padded_string padded(json);
  simdjson::dom::array list;
  if (parser.parse(padded).get(root) != simdjson::SUCCESS ||
      root["keys"].get(list) != simdjson::SUCCESS) {
    return Error(ErrorCode::kInvalidArgument, "API keys: not a JSON object with a list \"keys\"");
  }
  std::vector<ApiKey> keys;
  for (simdjson::dom::element element : list) {
    const std::string where = fmt::format("keys[{}]", keys.size());
    simdjson::dom::object entry;
    if (element.get(entry) != simdjson::SUCCESS) {
      return Error(ErrorCode::kInvalidArgument, "{} is no object", where);
    }
    if (keys.size() == kMaxApiKeys) {
      return Error(ErrorCode::kInvalidArgument, "more than {} keys", kMaxApiKeys);
    }
    ASSIGN_OR_RETURN(ApiKey key, ReadKey(entry, where));
    keys.push_back(std::move(key));
  }
  return keys;
}

std::optional<size_t> FindApiKey(const std::vector<ApiKey>& keys, std::string_view authorization,
                                 std::string_view x_api_key) {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view sent = x_api_key;
  if (authorization.size() > kBearer.size() &&
      http::EqualsIgnoreCase(authorization.substr(0, kBearer.size()), kBearer)) {
    sent = authorization.substr(kBearer.size());
  }
  std::optional<size_t> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (EqualConstantTime(sent, keys[i].key) && !found) found = i;
  }
  return found;
}

}  // namespace hayate::gateway
