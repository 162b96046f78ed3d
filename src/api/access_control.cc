#include "api/access_control.h"

#include <simdjson.h>

#include <limits>

#include "api/field_reader.h"
#include "base/constant_time.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace hayate::api {
namespace {

constexpr size_t kMaxKeyFileBytes = 16 << 20;

// Every key that the head carries: proxies add theirs to the client's.
std::vector<std::string_view> SentKeys(const http::HeaderView& headers) {
  constexpr std::string_view kBearer = "Bearer ";
  std::vector<std::string_view> keys;
  for (const http::Header& header : headers) {
    if (http::EqualsIgnoreCase(header.name, "x-api-key")) keys.push_back(header.value);
    if (!http::EqualsIgnoreCase(header.name, "authorization")) continue;
    if (header.value.size() <= kBearer.size()) continue;
    if (!http::EqualsIgnoreCase(header.value.substr(0, kBearer.size()), kBearer)) continue;
    keys.push_back(header.value.substr(kBearer.size()));
  }
  return keys;
}

Status NoKey(bool sent_any) {
  return Status(
      ErrorCode::kUnauthenticated,
      sent_any ? "the API key is wrong" : "an API key is missing; send Authorization: Bearer KEY");
}

}  // namespace

Result<std::vector<ApiKey>> ParseKeyFile(std::string_view json) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object root, ParseBody(parser, json));
  FieldReader file(root);
  const auto list = file.Array("keys");
  RETURN_IF_ERROR(file.status());
  if (!list) return InvalidField("keys", "is missing");
  std::vector<ApiKey> keys;
  for (const simdjson::dom::element element : *list) {
    const std::string where = "keys[" + std::to_string(keys.size()) + "]";
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
    if (keys.size() == kMaxApiKeys) {
      return InvalidField("keys", "holds more than {} keys", kMaxApiKeys);
    }
    FieldReader fields(object, where + ".");
    ApiKey key;
    key.key = fields.String("key").value_or("");
    key.id = fields.String("id").value_or(where);
    key.max_concurrent = static_cast<int32_t>(
        fields.Int("max_concurrent", 0, std::numeric_limits<int32_t>::max()).value_or(0));
    key.admin = fields.Bool("admin").value_or(false);
    RETURN_IF_ERROR(fields.status());
    if (key.key.empty()) return InvalidField(where + ".key", "must be a string, not empty");
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<std::unique_ptr<AccessControl>> AccessControl::Create(AccessOptions options) {
  auto access = std::unique_ptr<AccessControl>(new AccessControl(std::move(options)));
  RETURN_IF_ERROR(access->Reload());
  return access;
}

Result<std::vector<ApiKey>> AccessControl::ReadKeys() const {
  std::vector<ApiKey> keys;
  if (!options_.key_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(options_.key_file, kMaxKeyFileBytes));
    auto parsed = ParseKeyFile(text);
    if (!parsed.ok()) return parsed.status().Under(options_.key_file);
    keys = *std::move(parsed);
  }
  for (size_t i = 0; i < options_.keys.size(); ++i) {
    if (options_.keys[i].empty()) continue;
    keys.push_back({.id = "api-key-" + std::to_string(i), .key = options_.keys[i]});
  }
  if (!options_.admin_key.empty()) {
    keys.push_back({.id = "admin", .key = options_.admin_key, .admin = true});
  }
  for (ApiKey& key : keys) {
    if (key.max_concurrent == 0 && !key.admin) {
      key.max_concurrent = options_.max_concurrent_per_key;
    }
  }
  return keys;
}

Status AccessControl::Reload() {
  ASSIGN_OR_RETURN(std::vector<ApiKey> keys, ReadKeys());
  const std::shared_ptr<const Table> before = table();
  auto next = std::make_shared<Table>();
  for (ApiKey& key : keys) {
    std::shared_ptr<std::atomic<int32_t>> running;
    for (size_t i = 0; before != nullptr && i < before->size() && running == nullptr; ++i) {
      if ((*before)[i].key.key == key.key) running = (*before)[i].running;
    }
    if (running == nullptr) running = std::make_shared<std::atomic<int32_t>>(0);
    next->push_back({std::move(key), std::move(running)});
  }
  std::lock_guard lock(mutex_);
  table_ = std::move(next);
  return OkStatus();
}

std::shared_ptr<const AccessControl::Table> AccessControl::table() const {
  std::lock_guard lock(mutex_);
  return table_;
}

Result<AccessControl::Caller> AccessControl::Admit(const http::Request& request,
                                                   Access access) const {
  if (access == Access::kOpen) return Caller{};
  const std::shared_ptr<const Table> keys = table();
  bool any_client = false;
  bool any_admin = false;
  const Entry* found = nullptr;
  const std::vector<std::string_view> sent = SentKeys(request.headers);
  for (const Entry& entry : *keys) {
    (entry.key.admin ? any_admin : any_client) = true;
    for (const std::string_view key : sent) {
      // The strongest that was sent counts. Every key is compared: time tells nothing.
      if (!EqualConstantTime(key, entry.key.key)) continue;
      if (found == nullptr || entry.key.admin) found = &entry;
    }
  }
  const bool needs_admin =
      any_admin && (access == Access::kAdmin || access == Access::kAdminIfKeyed);
  if (needs_admin && (found == nullptr || !found->key.admin)) {
    if (found == nullptr) return NoKey(!sent.empty());
    return Status(ErrorCode::kPermissionDenied, "this route needs the operator's key");
  }
  if (access == Access::kAdmin && !any_admin && !http::IsLoopback(request.peer)) {
    return Status(ErrorCode::kPermissionDenied,
                  "without --admin-api-key this route answers only on the loopback interface");
  }
  if (found == nullptr) {
    if (any_client) return NoKey(!sent.empty());
    return Caller{};
  }
  // A lone count: relaxed. It may overshoot for a moment, never let more through.
  const int32_t before = found->running->fetch_add(1, std::memory_order_relaxed);
  Caller caller{.key_id = found->key.id, .use = KeyUse(found->running)};
  if (found->key.max_concurrent > 0 && before >= found->key.max_concurrent) {
    return Error(ErrorCode::kResourceExhausted,
                 "this key has {} requests under way, as many as it may; try again later",
                 found->key.max_concurrent);
  }
  return caller;
}

}  // namespace hayate::api
