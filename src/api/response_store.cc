#include "api/response_store.h"

#include <utility>

#include "api/field_reader.h"
#include "base/error.h"

namespace hayate::api {
namespace {

// An entry's own share: list and map nodes, strings' heads.
constexpr size_t kEntryBytes = 512;

Status NotFound(const std::string& id) {
  return Error(ErrorCode::kNotFound,
               "there is no response '{}': it was never stored, was deleted, or had to make room",
               Shown(id));
}

size_t BytesOf(const ResponseItems& items) {
  size_t bytes = 0;
  for (const std::string& item : items) bytes += item.size() + sizeof(std::string);
  return bytes;
}

}  // namespace

size_t StoredResponse::bytes() const {
  return body.size() + BytesOf(output) + (input ? BytesOf(*input) : 0) + kEntryBytes;
}

Status ResponseStore::Begin(const std::string& id, StoredResponse response,
                            std::function<void()> cancel) {
  std::lock_guard lock(mutex_);
  const size_t bytes = response.bytes();
  if (running_bytes_ + bytes > limits_.max_bytes || num_running_ >= limits_.max_responses) {
    return Status(ErrorCode::kResourceExhausted,
                  "too many responses are made in the background; try again later");
  }
  if (by_id_.contains(id)) return InvalidField("rid", "'{}' names a stored response", Shown(id));
  entries_.push_front({.id = id, .background = true, .cancel = std::move(cancel)});
  by_id_[id] = entries_.begin();
  Replace(entries_.front(), std::move(response));
  running_bytes_ += bytes;
  ++num_running_;
  EvictOverLimit();
  return OkStatus();
}

void ResponseStore::Update(const std::string& id, std::string body) {
  std::lock_guard lock(mutex_);
  Entry* entry = Find(id);
  if (entry == nullptr || !entry->cancel) return;
  running_bytes_ -= entry->bytes;
  Replace(*entry, {std::move(body), entry->response.input, {}, entry->response.owner});
  running_bytes_ += entry->bytes;
}

void ResponseStore::Finish(const std::string& id, StoredResponse response, bool begun) {
  std::lock_guard lock(mutex_);
  Entry* entry = Find(id);
  if (begun) {
    if (entry == nullptr || !entry->cancel) return;
    EndRun(*entry);
  } else if (entry != nullptr && entry->cancel) {
    return;  // another response of that name still runs
  }
  if (response.bytes() > limits_.max_bytes) {
    if (entry != nullptr) Remove(id);
    return;
  }
  if (entry == nullptr) {
    entries_.push_front({.id = id});
    by_id_[id] = entries_.begin();
    entry = &entries_.front();
  }
  Replace(*entry, std::move(response));
  EvictOverLimit();
}

Result<std::string> ResponseStore::Body(const std::string& id, uint64_t owner) {
  std::lock_guard lock(mutex_);
  const Entry* entry = FindOwned(id, owner);
  if (entry == nullptr) return NotFound(id);
  return entry->response.body;
}

Result<std::shared_ptr<const ResponseItems>> ResponseStore::Input(const std::string& id,
                                                                  uint64_t owner) {
  std::lock_guard lock(mutex_);
  const Entry* entry = FindOwned(id, owner);
  if (entry == nullptr) return NotFound(id);
  return entry->response.input;
}

Result<ResponseItems> ResponseStore::Conversation(const std::string& id, uint64_t owner) {
  std::lock_guard lock(mutex_);
  const Entry* entry = FindOwned(id, owner);
  if (entry == nullptr) return NotFound(id);
  if (entry->cancel) {
    return Error(ErrorCode::kInvalidArgument, "the response '{}' is still being made", Shown(id));
  }
  ResponseItems items;
  if (entry->response.input) items = *entry->response.input;
  items.insert(items.end(), entry->response.output.begin(), entry->response.output.end());
  return items;
}

Result<std::string> ResponseStore::Cancel(const std::string& id, uint64_t owner) {
  std::function<void()> cancel;
  std::string body;
  {
    std::lock_guard lock(mutex_);
    Entry* entry = FindOwned(id, owner);
    if (entry == nullptr) return NotFound(id);
    if (entry->cancelled) return entry->response.body;
    if (!entry->cancel) {
      return Error(ErrorCode::kInvalidArgument,
                   "the response '{}' {}: only one that runs in the background can be cancelled",
                   Shown(id), entry->background ? "is over" : "was not made in the background");
    }
    cancel = EndRun(*entry);
    entry->cancelled = true;
    body = WithStatus(entry->response.body, "cancelled");
    Replace(*entry, {body, entry->response.input, {}, entry->response.owner});
    EvictOverLimit();
  }
  cancel();
  return body;
}

Status ResponseStore::Erase(const std::string& id, uint64_t owner) {
  std::function<void()> cancel;
  {
    std::lock_guard lock(mutex_);
    Entry* entry = FindOwned(id, owner);
    if (entry == nullptr) return NotFound(id);
    if (entry->cancel) cancel = EndRun(*entry);
    Remove(id);
  }
  if (cancel) cancel();
  return OkStatus();
}

size_t ResponseStore::num_responses() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t ResponseStore::num_bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

ResponseStore::Entry* ResponseStore::Find(const std::string& id) {
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at->second);
  return &*at->second;
}

ResponseStore::Entry* ResponseStore::FindOwned(const std::string& id, uint64_t owner) {
  Entry* entry = Find(id);
  return entry != nullptr && entry->response.owner == owner ? entry : nullptr;
}

std::function<void()> ResponseStore::EndRun(Entry& entry) {
  running_bytes_ -= entry.bytes;
  --num_running_;
  return std::exchange(entry.cancel, nullptr);
}

void ResponseStore::Remove(const std::string& id) {
  const auto at = by_id_.find(id);
  bytes_ -= at->second->bytes;
  entries_.erase(at->second);
  by_id_.erase(at);
}

void ResponseStore::Replace(Entry& entry, StoredResponse response) {
  bytes_ -= entry.bytes;
  entry.response = std::move(response);
  entry.bytes = entry.response.bytes();
  bytes_ += entry.bytes;
}

void ResponseStore::EvictOverLimit() {
  auto at = entries_.end();
  while (at != entries_.begin() &&
         (entries_.size() > limits_.max_responses || bytes_ > limits_.max_bytes)) {
    --at;
    if (at->cancel) continue;  // it runs
    const std::string id = (at++)->id;
    Remove(id);
  }
}

std::string WithStatus(std::string body, std::string_view status) {
  // The first of that name is the response's own: only its id and times stand before it.
  constexpr std::string_view kField = R"("status":")";
  const size_t begin = body.find(kField);
  CHECK(begin != std::string::npos) << "a response without a status";
  const size_t value = begin + kField.size();
  return body.replace(value, body.find('"', value) - value, status);
}

}  // namespace hayate::api
