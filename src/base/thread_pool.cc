#include "base/thread_pool.h"

namespace hayate {

ThreadPool::ThreadPool(std::string name, int num_threads, size_t capacity) : queue_(capacity) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back(name + "-" + std::to_string(i), [this] {
      while (auto task = queue_.Pop()) (*task)();
    });
  }
}

ThreadPool::~ThreadPool() {
  queue_.Close();
  threads_.clear();
}

}  // namespace hayate
