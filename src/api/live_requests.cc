#include "api/live_requests.h"

namespace hayate::api {

std::optional<std::string> LiveRequests::Claim(const std::vector<std::string>& names) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < names.size(); ++i) {
    if (ids_.try_emplace(names[i]).second) continue;
    for (size_t taken = 0; taken < i; ++taken) ids_.erase(names[taken]);
    return names[i];
  }
  return std::nullopt;
}

void LiveRequests::Add(const std::string& name, RequestId id) {
  std::lock_guard lock(mutex_);
  ids_[name].push_back(id);
}

void LiveRequests::Release(const std::vector<std::string>& names) {
  std::lock_guard lock(mutex_);
  for (const std::string& name : names) ids_.erase(name);
}

std::vector<RequestId> LiveRequests::Find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = ids_.find(name);
  return it == ids_.end() ? std::vector<RequestId>() : it->second;
}

}  // namespace hayate::api
