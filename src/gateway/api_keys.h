#pragma once
// The API keys of clients, with their limits.
//
// A file of them is JSON:
//   {"keys": [{"id": "team-a", "key": "sk-…", "requests_per_second": 10, "tokens_per_second": 5000,
//              "max_concurrent": 32, "priority": "high", "admin": false}]}

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gateway/admission.h"

namespace hayate::gateway {

struct ApiKey {
  std::string id;  // for logs and metrics; the key itself is never logged
  std::string key;
  KeyLimits limits;
  Priority priority = Priority::kNormal;
  bool admin = true;  // may change the fleet
};

inline constexpr size_t kMaxApiKeys = 10'000;

// kInvalidArgument names the entry and the field.
Result<std::vector<ApiKey>> ParseApiKeys(std::string_view json);

// Which key an Authorization (or x-api-key) value carries: its place in `keys`. Takes equal time
// wherever the first difference is.
std::optional<size_t> FindApiKey(const std::vector<ApiKey>& keys, std::string_view authorization,
                                 std::string_view x_api_key);

// "high", "normal", "low".
std::optional<Priority> ParsePriority(std::string_view text);

}  // namespace hayate::gateway
