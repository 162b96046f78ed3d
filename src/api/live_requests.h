#pragma once
// The client-visible ids of the requests that run, for /abort_request. Any thread.

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ids.h"

namespace hayate::api {

class LiveRequests {
 public:
  // False when the name is in use: a second answer under it could not be told apart.
  bool Claim(const std::string& name);
  void Add(const std::string& name, RequestId id);
  void Release(const std::string& name);
  // The requests behind exactly this name; empty when there is none.
  std::vector<RequestId> Find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::vector<RequestId>> ids_;
};

}  // namespace hayate::api
