#pragma once
// The responses that /v1/responses keeps: for retrieval, for the turns that follow, and for answers
// that are made in the background. In memory, bounded; the least recently used go first. Any
// thread.
//
//   Begin ─▶ running ─▶ Finish ─▶ kept ─▶ evicted
//               │ Cancel             ▲
//               └────────────────────┘      Erase from any state

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace hayate::api {

using ResponseItems = std::vector<std::string>;  // each a JSON object

struct StoredResponse {
  std::string body;  // the response as JSON
  std::shared_ptr<const ResponseItems> input;
  ResponseItems output;
  uint64_t owner = 0;

  size_t bytes() const;
};

class ResponseStore {
 public:
  struct Limits {
    size_t max_responses = 4096;
    size_t max_bytes = size_t{256} << 20;
  };
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  // A response that is made in the background; `cancel` stops it, from any thread. Running
  // responses are not evicted: kResourceExhausted when they alone would fill the store.
  Status Begin(const std::string& id, StoredResponse response, std::function<void()> cancel);
  // A running response moves on. Without effect once it is cancelled or erased.
  void Update(const std::string& id, std::string body);
  // A response is over. One that was begun must still be running; one that alone is larger than the
  // store is not kept.
  void Finish(const std::string& id, StoredResponse response, bool begun);

  // kNotFound where there is none of that id. Using a response makes it the last to go.
  // A response of another owner is as none.
  Result<std::string> Body(const std::string& id, uint64_t owner);
  Result<std::shared_ptr<const ResponseItems>> Input(const std::string& id, uint64_t owner);
  // Input and output, for a turn that follows; kInvalidArgument while it runs.
  Result<ResponseItems> Conversation(const std::string& id, uint64_t owner);
  // Stops a running response and gives its body; an answer that was not made in the background, or
  // has come to its end, cannot be cancelled. Again is as once.
  Result<std::string> Cancel(const std::string& id, uint64_t owner);
  Status Erase(const std::string& id, uint64_t owner);

  size_t num_responses() const;
  size_t num_bytes() const;

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    size_t bytes = 0;
    bool background = false;
    bool cancelled = false;
    std::function<void()> cancel;  // set while it runs
  };
  using Entries = std::list<Entry>;  // most recently used first

  // All with mutex_ held.
  Entry* Find(const std::string& id);
  Entry* FindOwned(const std::string& id, uint64_t owner);
  std::function<void()> EndRun(Entry& entry);
  void Remove(const std::string& id);
  void Replace(Entry& entry, StoredResponse response);
  void EvictOverLimit();

  const Limits limits_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_id_;
  size_t bytes_ = 0;
  size_t running_bytes_ = 0;
  size_t num_running_ = 0;
};

// A response's JSON with another status. The body is one that this server has written.
std::string WithStatus(std::string body, std::string_view status);

}  // namespace hayate::api
