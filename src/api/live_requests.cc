#include "api/live_requests.h"

namespace hayate::api {

bool LiveRequests::Claim(const std::string& name) {
  std::lock_guard lock(mutex_);
  return ids_.try_emplace(name).second;
}

void LiveRequests::Add(const std::string& name, RequestId id) {
  std::lock_guard lock(mutex_);
  ids_[name].push_back(id);
}

void LiveRequests::Release(const std::string& name) {
  std::lock_guard lock(mutex_);
  ids_.erase(name);
}

std::vector<RequestId> LiveRequests::Find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = ids_.find(name);
  return it == ids_.end() ? std::vector<RequestId>() : it->second;
}

}  // namespace hayate::api
