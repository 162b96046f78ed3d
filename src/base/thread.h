#pragma once
// A named thread that joins on destruction. Its owner closes whatever it waits on first.

#include <functional>
#include <string>
#include <thread>

namespace hayate {

class NamedThread {
 public:
  NamedThread() = default;
  // `name` shows in debuggers and `top -H`; the kernel keeps 15 characters.
  NamedThread(std::string name, std::function<void()> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&& other);
  ~NamedThread() { Join(); }

  void Join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

// Pins the calling thread to one core. Best effort: false where the kernel refuses.
bool PinThisThread(int cpu);

}  // namespace hayate
