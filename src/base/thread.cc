#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <utility>

namespace hayate {

NamedThread::NamedThread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        body();
      }) {}

NamedThread& NamedThread::operator=(NamedThread&& other) {
  Join();
  thread_ = std::move(other.thread_);
  return *this;
}

void NamedThread::Join() {
  if (thread_.joinable()) thread_.join();
}

bool PinThisThread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

}  // namespace hayate
