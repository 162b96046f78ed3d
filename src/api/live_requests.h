#pragma once
// The client-visible ids of the requests that run, for /abort_request. Any thread.

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ids.h"

namespace hayate::api {

class LiveRequests {
 public:
  // Takes all of `names`, or none: then gives one that is in use, whose answer could not be told
  // apart.
  std::optional<std::string> Claim(const std::vector<std::string>& names);
  void Add(const std::string& name, RequestId id);
  void Release(const std::vector<std::string>& names);
  // The requests behind exactly this name; empty when there is none.
  std::vector<RequestId> Find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::vector<RequestId>> ids_;
};

}  // namespace hayate::api
