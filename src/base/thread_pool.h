#pragma once
// A fixed pool for work that must leave the http and engine threads: templating, tokenising,
// grammar compilation, masks. Tasks are independent and must not wait for one another.

#include <functional>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/thread.h"

namespace hayate {

class ThreadPool {
 public:
  // `capacity` bounds the tasks that wait; at the bound TrySubmit refuses.
  ThreadPool(std::string name, int num_threads, size_t capacity);
  // Finishes what is queued, then joins.
  ~ThreadPool();

  bool TrySubmit(std::function<void()> task) { return queue_.TryPush(std::move(task)); }
  size_t num_waiting() const { return queue_.size(); }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<NamedThread> threads_;
};

}  // namespace hayate
