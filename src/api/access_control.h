#pragma once
// Who may call what: the keys of clients, the operator's key, and how many requests a key may have
// under way. Any thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "http/server.h"

namespace hayate::api {

// What a route asks of its callers.
enum class Access : uint8_t {
  kOpen,          // nothing: probes and scrapers
  kClient,        // a client's key, where there are any
  kAdminIfKeyed,  // the operator's key where there is one, else a client's
  kAdmin,         // the operator's key; without one the call must come from this machine
};

struct ApiKey {
  std::string id;  // for logs; the key itself is never logged
  std::string key;
  int32_t max_concurrent = 0;  // requests under way; 0: no limit
  bool admin = false;
};

struct AccessOptions {
  std::vector<std::string> keys;
  // JSON, as hayate gateway reads it: {"keys": [{"id", "key", "max_concurrent", "admin"}]}.
  std::string key_file;
  std::string admin_key;
  int32_t max_concurrent_per_key = 0;  // of keys that say nothing else; 0: no limit
};

// One request under way counts against its key until this is gone.
class KeyUse {
 public:
  KeyUse() = default;
  explicit KeyUse(std::shared_ptr<std::atomic<int32_t>> count) : count_(std::move(count)) {}
  KeyUse(KeyUse&&) = default;
  KeyUse& operator=(KeyUse&& other) noexcept {
    Release();
    count_ = std::move(other.count_);
    return *this;
  }
  ~KeyUse() { Release(); }

 private:
  // A lone count: relaxed.
  void Release() {
    if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);
    count_.reset();
  }
  std::shared_ptr<std::atomic<int32_t>> count_;
};

class AccessControl {
 public:
  // kInvalidArgument names the file, the entry and the field.
  static Result<std::unique_ptr<AccessControl>> Create(AccessOptions options);
  // Reads the key file again. On an error everything stays as it was. Keys that stay keep their
  // counts.
  Status Reload();

  struct Caller {
    std::string key_id;  // empty: no key was needed
    KeyUse use;
  };
  // kUnauthenticated, kPermissionDenied, or kResourceExhausted when the key's requests under way
  // are as many as it may have.
  Result<Caller> Admit(const http::Request& request, Access access) const;

 private:
  struct Entry {
    ApiKey key;
    std::shared_ptr<std::atomic<int32_t>> running;
  };
  using Table = std::vector<Entry>;
  explicit AccessControl(AccessOptions options) : options_(std::move(options)) {}
  Result<std::vector<ApiKey>> ReadKeys() const;
  std::shared_ptr<const Table> table() const;

  const AccessOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;  // guarded by mutex_
};

// Reads the JSON of a key file. kInvalidArgument names the entry and the field.
Result<std::vector<ApiKey>> ParseKeyFile(std::string_view json);

inline constexpr size_t kMaxApiKeys = 10'000;

}  // namespace hayate::api
