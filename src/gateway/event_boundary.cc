#include "gateway/event_boundary.h"

#include <algorithm>

namespace hayate::gateway {

size_t LastEventEnd(std::string_view bytes) {
  // An empty line: LF LF, or CR LF CR LF, or a mix of them.
  for (size_t end = bytes.size(); end >= 2;) {
    const size_t newline = bytes.rfind('\n', end - 1);
    if (newline == std::string_view::npos || newline == 0) return 0;
    const size_t before = bytes[newline - 1] == '\r' ? newline - 1 : newline;
    if (before > 0 && bytes[before - 1] == '\n') return newline + 1;
    end = newline;
  }
  return 0;
}

void EventBoundary::Take(std::string_view bytes, std::string& out) {
  if (held_.empty()) {
    const size_t end = LastEventEnd(bytes);
    out.append(bytes.substr(0, end));
    if (end > 0) open_ = false;
    held_.append(bytes.substr(end));
  } else {
    // No event ends in what is held already: only its last bytes can begin an empty line.
    const size_t from = held_.size() - std::min<size_t>(held_.size(), 3);
    held_.append(bytes);
    size_t end = LastEventEnd(std::string_view(held_).substr(from));
    if (end > 0) {
      end += from;
      out.append(held_, 0, end);
      held_.erase(0, end);
      open_ = false;
    }
  }
  if (held_.size() <= kMaxHeldBytes) return;
  out.append(held_);
  held_.clear();
  open_ = true;
}

}  // namespace hayate::gateway
