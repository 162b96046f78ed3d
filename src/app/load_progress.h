#pragma once
// A progress line on stderr while a model loads; nothing when stderr is not a terminal.

#include <cstdint>

namespace hayate::app {

class LoadProgress {
 public:
  LoadProgress();
  // Any one thread.
  void Update(int64_t done_bytes, int64_t total_bytes);
  // Clears the line.
  void Finish();

 private:
  bool terminal_ = false;
  int last_percent_ = -1;
};

}  // namespace hayate::app
