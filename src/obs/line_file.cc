#include "obs/line_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace hayate::obs {

Result<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path) {
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "ae");
  if (file == nullptr) return Error(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  return std::unique_ptr<LineFile>(new LineFile(path, file));
}

LineFile::~LineFile() {
  Flush();
  if (file_ != stdout) std::fclose(file_);
}

void LineFile::Add(std::string_view line) {
  std::lock_guard lock(mutex_);
  if (pending_.size() + line.size() + 1 > kMaxPendingBytes) {
    ++dropped_;
    return;
  }
  pending_.append(line);
  pending_.push_back('\n');
}

void LineFile::Flush() {
  std::string lines;
  uint64_t dropped = 0;
  {
    std::lock_guard lock(mutex_);
    lines.swap(pending_);
    std::swap(dropped, dropped_);
  }
  if (dropped > 0) LOG_WARN("{}: {} lines dropped", path_, dropped);
  if (lines.empty()) return;
  const bool written = std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size();
  if (std::fflush(file_) != 0 || !written) LOG_WARN("{}: cannot write", path_);
}

}  // namespace hayate::obs
