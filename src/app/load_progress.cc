#include "app/load_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace hayate::app {

LoadProgress::LoadProgress() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void LoadProgress::Update(int64_t done_bytes, int64_t total_bytes) {
  if (!terminal_ || total_bytes <= 0) return;
  const int percent = static_cast<int>(done_bytes * 100 / total_bytes);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  fmt::print(stderr, "\rloading {:3d} %", percent);
  std::fflush(stderr);
}

void LoadProgress::Finish() {
  if (terminal_ && last_percent_ >= 0) fmt::print(stderr, "\r\033[K");
}

}  // namespace hayate::app
